package hostnet

import (
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
)

func routeOf(r *netlink.Route, f model.Family) route {
	out := route{via: addrOf(r.Gw), src: addrOf(r.Src), table: r.Table, family: f, unreachable: r.Type == unix.RTN_UNREACHABLE}
	if r.Dst != nil {
		out.dst = prefixOf(r.Dst)
	}
	return out
}

func netlinkFamily(f model.Family) int {
	if f == model.IPv4 {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

func prefixOf(n *net.IPNet) netip.Prefix {
	bits, size := n.Mask.Size()
	a := addrOf(n.IP)
	// A 4-in-6 address has the mask of its own family.
	if a.Is4() && size == 128 {
		bits -= 96
	}
	return netip.PrefixFrom(a, bits)
}

func netOf(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
