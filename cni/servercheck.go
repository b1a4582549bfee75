package cni

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/cni/protocol"
	"github.com/felixlike/felixlike/internal/listing"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
)

// errNotAsAdded says that an attachment differs from the one that Add made.
var errNotAsAdded = errors.New("not as it was added")

// Check fails unless the sandbox is attached as Add left it, and programmed.
func (s *Server) Check(ctx context.Context, r *protocol.CheckRequest) (protocol.Empty, error) {
	spec, err := specOf(r.Sandbox)
	if err != nil {
		return protocol.Empty{}, err
	}
	s.sweeping.RLock()
	defer s.sweeping.RUnlock()
	defer s.pods.lock(spec.Pod.String())()
	a, err := s.attacher.Attached(ctx, spec)
	if err != nil && a == nil {
		return protocol.Empty{}, err
	}
	if a == nil || a.PodInterface != spec.Interface || a.OFPort == 0 || err != nil {
		return protocol.Empty{}, fmt.Errorf("pod %s is %w: the bridge has no open port of this sandbox", spec.Pod, errNotAsAdded)
	}
	for _, text := range r.Addresses {
		p, err := netip.ParsePrefix(text)
		if err != nil || !slices.Contains(a.Addresses, p.Addr().Unmap()) {
			return protocol.Empty{}, fmt.Errorf("pod %s is %w: it has no address %s", spec.Pod, errNotAsAdded, text)
		}
	}
	if err := checkLinks(spec, a); err != nil {
		return protocol.Empty{}, fmt.Errorf("pod %s is %w: %w", spec.Pod, errNotAsAdded, err)
	}
	return protocol.Empty{}, s.programmed(ctx, a, r.Sandbox.PodUID)
}

// checkLinks looks at both sides of the pair.
func checkLinks(spec Spec, a *model.Attachment) error {
	host, err := netlink.LinkByName(a.Interface)
	if err != nil {
		return fmt.Errorf("host interface %s: %w", a.Interface, err)
	}
	if host.Attrs().Alias != spec.alias() || host.Attrs().Flags&net.FlagUp == 0 {
		return fmt.Errorf("host interface %s is down, or not this sandbox's", a.Interface)
	}
	podNS, err := openNamespace(spec.NetNS)
	if err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	defer podNS.Close()
	return namespace.In(int(podNS.Fd()), func() error { return checkPod(spec, a) })
}

// checkPod is run in the pod's namespace.
func checkPod(spec Spec, a *model.Attachment) error {
	link, err := netlink.LinkByName(spec.Interface)
	if err != nil {
		return fmt.Errorf("interface %s: %w", spec.Interface, err)
	}
	if link.Attrs().Flags&net.FlagUp == 0 || !bytes.Equal(link.Attrs().HardwareAddr, a.MAC) {
		return fmt.Errorf("interface %s is down, or has not the MAC address %s", spec.Interface, a.MAC)
	}
	have, err := listing.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("addresses of %s: %w", spec.Interface, err)
	}
	for _, want := range a.Addresses {
		if !slices.ContainsFunc(have, func(h netlink.Addr) bool { return h.IP.Equal(want.AsSlice()) }) {
			return fmt.Errorf("interface %s has no address %s", spec.Interface, want)
		}
		routes, err := listing.Whole(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family(want), &netlink.Route{LinkIndex: link.Attrs().Index}, netlink.RT_FILTER_OIF)
		})
		if err != nil {
			return fmt.Errorf("routes of %s: %w", spec.Interface, err)
		}
		if !slices.ContainsFunc(routes, isDefault) {
			return fmt.Errorf("interface %s has no default route of the family of %s", spec.Interface, want)
		}
	}
	return nil
}

func family(a netip.Addr) int {
	if a.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

func isDefault(r netlink.Route) bool {
	ones := 0
	if r.Dst != nil {
		ones, _ = r.Dst.Mask.Size()
	}
	return ones == 0 && r.Gw != nil
}
