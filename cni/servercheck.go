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
	gateway, err := s.attacher.gatewayMAC(ctx)
	if err != nil {
		return protocol.Empty{}, err
	}
	if err := checkLinks(spec, a, gateway); err != nil {
		return protocol.Empty{}, fmt.Errorf("pod %s is %w: %w", spec.Pod, errNotAsAdded, err)
	}
	return protocol.Empty{}, s.programmed(ctx, a, r.Sandbox.PodUID)
}

// checkLinks looks at both sides of the pair. The gateway port has the MAC address.
func checkLinks(spec Spec, a *model.Attachment, gateway net.HardwareAddr) error {
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
	return namespace.In(int(podNS.Fd()), func() error { return checkPod(spec, a, gateway) })
}

// checkPod is run in the pod's namespace.
func checkPod(spec Spec, a *model.Attachment, gateway net.HardwareAddr) error {
	link, err := netlink.LinkByName(spec.Interface)
	if err != nil {
		return fmt.Errorf("interface %s: %w", spec.Interface, err)
	}
	if link.Attrs().Flags&net.FlagUp == 0 || !bytes.Equal(link.Attrs().HardwareAddr, a.MAC) {
		return fmt.Errorf("interface %s is down, or has not the MAC address %s", spec.Interface, a.MAC)
	}
	have, err := addressesOf(link)
	if err != nil {
		return err
	}
	for _, want := range a.Addresses {
		at := slices.IndexFunc(have, func(h netip.Prefix) bool { return h.Addr() == want })
		if at < 0 {
			return fmt.Errorf("interface %s has no address %s", spec.Interface, want)
		}
		if err := checkRoutes(link, have[at], gateway); err != nil {
			return err
		}
	}
	return nil
}

// checkRoutes looks at the routes and the neighbour of an address. An earlier version gave the address with the node's prefix: then the
// gateway is on link, and the kernel finds its MAC address.
func checkRoutes(link netlink.Link, address netip.Prefix, mac net.HardwareAddr) error {
	name, ofAddress := link.Attrs().Name, family(address.Addr())
	routes, err := listing.Whole(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(ofAddress, &netlink.Route{LinkIndex: link.Attrs().Index}, netlink.RT_FILTER_OIF)
	})
	if err != nil {
		return fmt.Errorf("routes of %s: %w", name, err)
	}
	at := slices.IndexFunc(routes, isDefault)
	if at < 0 {
		return fmt.Errorf("interface %s has no default route of the family of %s", name, address.Addr())
	}
	gateway := routes[at].Gw
	if !slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Gw == nil && r.Dst != nil && r.Dst.Contains(gateway) }) {
		return fmt.Errorf("interface %s has no route to the gateway %s", name, gateway)
	}
	if !address.IsSingleIP() {
		return nil
	}
	known, err := listing.Whole(func() ([]netlink.Neigh, error) { return netlink.NeighList(link.Attrs().Index, ofAddress) })
	if err != nil {
		return fmt.Errorf("neighbours of %s: %w", name, err)
	}
	if !slices.ContainsFunc(known, func(n netlink.Neigh) bool {
		return n.State == netlink.NUD_PERMANENT && n.IP.Equal(gateway) && bytes.Equal(n.HardwareAddr, mac)
	}) {
		return fmt.Errorf("interface %s has no permanent neighbour %s with the MAC address %s", name, gateway, mac)
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
