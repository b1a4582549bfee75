package cni

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/internal/ethtool"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
)

// fitOffloads sets transmit offload of the attached pods for the bridge's datapath,
// which may have changed since they were attached. It waits for the bridge.
func (s *Server) fitOffloads(ctx context.Context) {
	if _, err := s.opts.Agent.LocalNode(ctx); err != nil {
		return // the agent ends
	}
	userspace, err := s.db.Userspace(ctx)
	if err != nil {
		s.opts.Log.Error("transmit offload of the pods may not fit the datapath", "error", err)
		return
	}
	all, err := s.attachments(ctx)
	if err != nil {
		s.opts.Log.Error("transmit offload of the pods may not fit the datapath", "error", err)
		return
	}
	for _, a := range all {
		changed, err := s.fitOffload(a, userspace)
		switch {
		case err != nil && ctx.Err() == nil:
			s.opts.Log.Warn("transmit offload of a pod may not fit the datapath; the pod fits again once it is recreated",
				"pod", a.Pod.String(), "userspace", userspace, "error", err)
		case changed:
			s.opts.Log.Info("transmit offload of a pod follows the datapath", "pod", a.Pod.String(), "offload", !userspace)
		}
	}
}

// fitOffload sets one pod's interface, and reports whether that changed it.
func (s *Server) fitOffload(a model.Attachment, userspace bool) (changed bool, err error) {
	defer s.pods.lock(a.Pod.String())()
	if a.NetNS == "" {
		return false, errors.New("an earlier version has not recorded the pod's network namespace")
	}
	podNS, err := openNamespace(a.NetNS)
	if err != nil {
		return false, fmt.Errorf("network namespace: %w", err)
	}
	defer podNS.Close()
	return changed, namespace.In(int(podNS.Fd()), func() error {
		link, err := netlink.LinkByName(a.PodInterface)
		if err != nil {
			return fmt.Errorf("interface %s: %w", a.PodInterface, err)
		}
		// The path may lead to another pod's namespace by now.
		if !bytes.Equal(link.Attrs().HardwareAddr, a.MAC) {
			return fmt.Errorf("interface %s of %s is another pod's", a.PodInterface, a.NetNS)
		}
		on, err := ethtool.Get(a.PodInterface, ethtool.TxChecksum)
		if changed = err == nil && on == userspace; !changed {
			return err
		}
		return setOffload(a.PodInterface, userspace)
	})
}
