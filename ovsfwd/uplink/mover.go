package uplink

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/listing"
)

func isDown(link netlink.Link) bool { return link.Attrs().RawFlags&unix.IFF_UP == 0 }

// routesOf returns the routes of an interface that move, of both families.
func (m *mover) routesOf(link netlink.Link) ([]netlink.Route, error) {
	v4, err := routes(link, netlink.FAMILY_V4)
	if err != nil {
		return nil, err
	}
	v6, err := routes(link, netlink.FAMILY_V6)
	return append(v4, v6...), err
}

type mover struct {
	from, to netlink.Link
	// back is set on the way back to the uplink.
	back bool
	// own is the node's own address, from which its tunnels are sent, if it is known.
	own netip.Addr
}

func newMover(from, to string) (*mover, error) {
	f, err := netlink.LinkByName(from)
	if err != nil {
		return nil, fmt.Errorf("uplink %s: %w", from, err)
	}
	t, err := netlink.LinkByName(to)
	if err != nil {
		return nil, fmt.Errorf("bridge port %s: %w", to, err)
	}
	return &mover{from: f, to: t}, nil
}

// addresses returns the addresses to move. Link-local ones stay: every interface has its own.
func addresses(link netlink.Link, family int) ([]netlink.Addr, error) {
	addrs, err := listing.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, family) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	return slices.DeleteFunc(addrs, func(a netlink.Addr) bool { return a.IP.IsLinkLocalUnicast() }), nil
}

// routes returns the routes to move: those of other programs, and those to the prefixes of
// addresses. Connected routes come before routes with a gateway that needs them.
func routes(link netlink.Link, family int) ([]netlink.Route, error) {
	all, err := listing.Whole(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(family, &netlink.Route{LinkIndex: link.Attrs().Index}, netlink.RT_FILTER_OIF)
	})
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	all = slices.DeleteFunc(all, func(r netlink.Route) bool {
		return r.Protocol == unix.RTPROT_KERNEL && (r.Dst == nil || r.Dst.IP.IsLinkLocalUnicast() || r.Dst.IP.IsMulticast())
	})
	slices.SortStableFunc(all, func(a, b netlink.Route) int { return len(a.Gw) - len(b.Gw) })
	return all, nil
}
