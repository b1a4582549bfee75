package uplink

import (
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/ovsfwd/conntrack"
)

// unbind removes the kernel's record of the interface from masqueraded connections with one of
// the addresses to move: the kernel would end them when they leave by another interface.
// These are the node's connections to Services, and pods' connections to the outside.
func (m *mover) unbind() error {
	var here []netip.Addr
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		all, err := routes(m.from, family)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			continue // without routes, no packet leaves by this interface
		}
		addrs, err := addresses(m.from, family)
		if err != nil {
			return err
		}
		for _, a := range addrs {
			if ip, ok := netip.AddrFromSlice(a.IP); ok {
				here = append(here, ip.Unmap())
			}
		}
	}
	if len(here) == 0 {
		return nil
	}
	k, err := conntrack.OpenKernel()
	if err != nil {
		return err
	}
	defer k.Close()
	var bound []conntrack.Connection
	err = k.Dump(func(c conntrack.Connection) {
		for _, a := range here {
			if c.MasqueradedBy(a) {
				bound = append(bound, c)
			}
		}
	})
	if err != nil {
		return err
	}
	_, err = k.Rebind(bound)
	return err
}
