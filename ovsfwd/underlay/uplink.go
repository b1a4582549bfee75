package underlay

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/listing"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
)

// Uplink is the interface by which a node reaches its peers.
type Uplink struct {
	Name string
	MTU  int
	// Why says how it was found.
	Why string
}

// Taken returns the interface that is a port of the userspace bridge.
type Taken func(ctx context.Context) (name string, err error)

// FindUplink returns the interface with the node's address, or else the one of
// the default route. Where that is the local port of the userspace bridge, the
// interface that the bridge has taken in is meant.
func FindUplink(ctx context.Context, node netip.Addr, taken Taken) (Uplink, error) {
	link, why, err := carries(node)
	if err != nil {
		return Uplink{}, err
	}
	if link.Attrs().Name == ovsdb.PhysicalBridge {
		name, err := taken(ctx)
		if err != nil {
			return Uplink{}, fmt.Errorf("uplink of bridge %s: %w", ovsdb.PhysicalBridge, err)
		}
		if link, err = netlink.LinkByName(name); err != nil {
			return Uplink{}, fmt.Errorf("uplink %s of bridge %s: %w", name, ovsdb.PhysicalBridge, err)
		}
		why = "it is in bridge " + ovsdb.PhysicalBridge + ", which " + why
	}
	return Uplink{Name: link.Attrs().Name, MTU: link.Attrs().MTU, Why: why}, nil
}

// Named returns the interface of that name.
func Named(name string) (Uplink, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return Uplink{}, fmt.Errorf("uplink %s: %w", name, err)
	}
	return Uplink{Name: name, MTU: link.Attrs().MTU, Why: "set in the configuration"}, nil
}

// carries returns the interface with the address, or of the default route.
func carries(node netip.Addr) (netlink.Link, string, error) {
	addrs, err := listing.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, "", fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		addr, ok := netip.AddrFromSlice(a.IP)
		if !ok || addr.Unmap() != node.Unmap() {
			continue
		}
		link, err := netlink.LinkByIndex(a.LinkIndex)
		if err != nil {
			return nil, "", fmt.Errorf("interface of address %s: %w", node, err)
		}
		// A routed host has its address on the loopback, and a way out beside it.
		if link.Attrs().Flags&net.FlagLoopback == 0 {
			return link, "has the node's address " + node.String(), nil
		}
	}
	for _, f := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		link, err := defaultLink(f)
		if link != nil || err != nil {
			return link, "has the default route", err
		}
	}
	return nil, "", fmt.Errorf("no interface has the node's address %s, and there is no default route: set uplink", node)
}

// defaultLink returns the interface of a family's best default route, or nil.
func defaultLink(family int) (netlink.Link, error) {
	routes, err := listing.Whole(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	routes = slices.DeleteFunc(routes, func(r netlink.Route) bool {
		if r.Dst == nil {
			return r.LinkIndex == 0
		}
		ones, _ := r.Dst.Mask.Size()
		return ones != 0 || r.LinkIndex == 0
	})
	if len(routes) == 0 {
		return nil, nil
	}
	best := slices.MinFunc(routes, func(a, b netlink.Route) int { return a.Priority - b.Priority })
	link, err := netlink.LinkByIndex(best.LinkIndex)
	if err != nil {
		return nil, fmt.Errorf("interface of the default route: %w", err)
	}
	return link, nil
}

// overheads are the bytes that the tunnels take inside the outer header of IP, without options: the
// inner Ethernet header (14), and then those of UDP and
// VXLAN or Geneve (8 and 8), or of GRE with the key that flows ask for (8). WireGuard takes the header of
// UDP (8), its own (16) and the authentication tag (16), and no inner Ethernet header.
func overheads() map[string]int {
	return map[string]int{"geneve": 30, "vxlan": 30, "gre": 22, "wireguard": 40}
}

// headerOf returns the size of a family's header without options, in bytes.
func headerOf(f model.Family) int {
	if f == model.IPv4 {
		return 20
	}
	return 40
}

// PodMTU returns the MTU that a tunnel over an uplink leaves to pods, with an outer header of the family.
func PodMTU(uplink Uplink, tunnel string, outer model.Family) (int, error) {
	overhead, known := overheads()[tunnel]
	if !known {
		return 0, fmt.Errorf("unknown tunnel type %q", tunnel)
	}
	overhead += headerOf(outer)
	mtu := min(uplink.MTU, maxMTU) - overhead
	if mtu < minMTU {
		return 0, fmt.Errorf("uplink %s: MTU %d less %s's %d bytes is less than %d, which IPv6 needs", uplink.Name, uplink.MTU, tunnel, overhead, minMTU)
	}
	return mtu, nil
}

// RoutedMTU returns the MTU of pods whose packets leave by an uplink as they are.
func RoutedMTU(uplink Uplink) (int, error) {
	mtu := min(uplink.MTU, maxMTU)
	if mtu < minMTU {
		return 0, fmt.Errorf("uplink %s: MTU %d is less than %d, which IPv6 needs", uplink.Name, uplink.MTU, minMTU)
	}
	return mtu, nil
}

// minMTU is the least that IPv6 allows (RFC 8200), maxMTU the most of an IPv4
// packet; a loopback has more.
const (
	minMTU = 1280
	maxMTU = 65535
)
