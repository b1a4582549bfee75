package hostnet

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/internal/listing"
	"github.com/felixlike/felixlike/model"
)

// Behind has the prefixes and nodes that an earlier run led through the gateway port, as the
// kernel has them. Programs read it while no agent runs.
type Behind struct {
	// Own are this node's pod prefixes, Peers those of its peers.
	Own, Peers []netip.Prefix
	// PeerNodes are the peers' own addresses.
	PeerNodes []netip.Addr
}

// ReadBehind reads the state of the gateway port of that name; it is empty without
// such a port.
func ReadBehind(gateway string) (Behind, error) {
	var b Behind
	link, err := netlink.LinkByName(gateway)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return b, nil
	}
	if err != nil {
		return b, fmt.Errorf("gateway port %s: %w", gateway, err)
	}
	addrs, err := listing.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return b, fmt.Errorf("addresses of gateway port %s: %w", gateway, err)
	}
	for _, a := range addrs {
		if p := prefixOf(a.IPNet); !p.Addr().IsLinkLocalUnicast() {
			b.Own = append(b.Own, p.Masked())
		}
	}
	p := &pass{link: link}
	for _, f := range model.Families() {
		routes, err := p.ourRoutes(f)
		if err != nil {
			return b, fmt.Errorf("routes by gateway port %s: %w", gateway, err)
		}
		for i := range routes {
			switch r := routeOf(&routes[i], f); {
			case routes[i].LinkIndex != link.Attrs().Index || !r.dst.IsValid():
			case r.table == mainTable:
				b.Peers = append(b.Peers, r.dst)
			default:
				b.PeerNodes = append(b.PeerNodes, r.dst.Addr())
			}
		}
	}
	return b, nil
}
