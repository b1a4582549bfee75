package uplink

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/sysctl"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
)

const (
	// ifaProto is IFA_PROTO of linux/if_addr.h: the origin of an address. Kernels before
	// 5.18 ignore it.
	ifaProto = 11
	// copyProto marks an address on the bridge's local port as a copy of an uplink's
	// address.
	copyProto = hostnet.CopyProtocol
)

// give copies an address, without its lifetime: a DHCP client renews the lease on the uplink
// only, so the copy and its routes would expire.
func (m *mover) give(a netlink.Addr) error {
	family := nl.GetIPFamily(a.IP)
	// Of the flags, the copy keeps noprefixroute, and deprecated (preferred lifetime 0).
	flags := uint32(a.Flags) & unix.IFA_F_NOPREFIXROUTE
	life := unix.IfaCacheinfo{Valid: math.MaxUint32, Prefered: math.MaxUint32}
	if a.Flags&unix.IFA_F_DEPRECATED != 0 {
		life.Prefered = 0
	}
	local := a.IP.To4()
	if family == netlink.FAMILY_V6 {
		// The address is still on the old interface, so duplicate address detection
		// would fail.
		flags |= unix.IFA_F_NODAD
		local = a.IP.To16()
	}
	remote, mask := local, a.Mask
	if a.Peer != nil {
		mask = a.Peer.Mask
		if remote = a.Peer.IP.To4(); family == netlink.FAMILY_V6 {
			remote = a.Peer.IP.To16()
		}
	}
	req := nl.NewNetlinkRequest(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	msg := nl.NewIfAddrmsg(family)
	ones, _ := mask.Size()
	msg.Index, msg.Scope, msg.Prefixlen = uint32(m.to.Attrs().Index), uint8(a.Scope), uint8(ones)
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.IFA_LOCAL, local))
	req.AddData(nl.NewRtAttr(unix.IFA_ADDRESS, remote))
	req.AddData(nl.NewRtAttr(unix.IFA_FLAGS, nl.Uint32Attr(flags)))
	if a.Broadcast != nil {
		req.AddData(nl.NewRtAttr(unix.IFA_BROADCAST, a.Broadcast))
	}
	req.AddData(nl.NewRtAttr(unix.IFA_CACHEINFO, (&nl.IfaCacheInfo{IfaCacheinfo: life}).Serialize()))
	if !m.back {
		req.AddData(nl.NewRtAttr(ifaProto, []byte{copyProto}))
	}
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// onBridge returns the addresses of an uplink as the bridge gets them. Open vSwitch 3.1 ignores the local address of
// IPv6 tunnels, and sends from an address of the bridge whose prefix holds the peer. So of the prefix of the node's own
// address, the other addresses come without their prefix. They come as deprecated, or the host would prefer them as
// sources: RFC 6724, rule 8, compares up to the length of the prefix.
func onBridge(all []netlink.Addr, own netip.Addr) []netlink.Addr {
	i := slices.IndexFunc(all, func(a netlink.Addr) bool { return own.Is6() && address(a) == own })
	if i < 0 {
		return all
	}
	prefix := all[i].IPNet
	out := slices.Clone(all)
	for j, a := range out {
		if j != i && a.Peer == nil && prefix.Contains(a.IP) {
			out[j].IPNet = &net.IPNet{IP: a.IP, Mask: net.CIDRMask(8*net.IPv6len, 8*net.IPv6len)}
			out[j].Flags |= unix.IFA_F_DEPRECATED
		}
	}
	return out
}

// there reports whether an address needs no copy. On the way back, the uplink's existing
// address is never replaced. On the bridge, an address with a lifetime is replaced.
func (m *mover) there(has []netlink.Addr, a netlink.Addr) bool {
	return slices.ContainsFunc(has, func(h netlink.Addr) bool {
		if m.back && a.IP.To4() == nil && h.IP.Equal(a.IP) {
			return true // the bridge may have it without its prefix
		}
		return h.Equal(a) && (m.back || h.Flags&unix.IFA_F_PERMANENT != 0 && (h.Flags^a.Flags)&unix.IFA_F_DEPRECATED == 0)
	})
}

// copies returns the addresses of an interface that give made.
func copies(link netlink.Link, family int) ([]netlink.Addr, error) {
	return marked(link, family, copyProto)
}

// marked returns the addresses of an interface with a protocol number.
func marked(link netlink.Link, family int, number byte) ([]netlink.Addr, error) {
	all, err := addresses(link, family)
	if err != nil {
		return nil, err
	}
	req := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
	req.AddData(nl.NewIfAddrmsg(family))
	messages, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWADDR)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	with := map[netip.Addr]bool{}
	for _, m := range messages {
		msg := nl.DeserializeIfAddrmsg(m)
		if int(msg.Index) != link.Attrs().Index || int(msg.Family) != family {
			continue
		}
		attrs, err := nl.ParseRouteAttrAsMap(m[msg.Len():])
		if err != nil {
			return nil, fmt.Errorf("list addresses: %w", err)
		}
		local, ok := attrs[unix.IFA_LOCAL]
		if !ok {
			local = attrs[unix.IFA_ADDRESS]
		}
		ip, _ := netip.AddrFromSlice(local.Value)
		proto := attrs[ifaProto].Value
		with[ip] = len(proto) == 1 && proto[0] == number
	}
	return slices.DeleteFunc(all, func(a netlink.Addr) bool { return !with[address(a)] }), nil
}

func address(a netlink.Addr) netip.Addr {
	ip, _ := netip.AddrFromSlice(a.IP)
	return ip.Unmap()
}

// stale returns the bridge's copies of addresses that the uplink has lost: another node may
// have them now, as with keepalived. If the uplink has lost the node's own address too, stale
// returns none, because the node must stay reachable.
func stale(uplink, bridge netlink.Link, family int, own netip.Addr) ([]netlink.Addr, error) {
	has, err := addresses(uplink, family)
	if err != nil || len(has) == 0 {
		return nil, err
	}
	of := netlink.FAMILY_V6
	if own.Is4() {
		of = netlink.FAMILY_V4
	}
	if own.IsValid() && of == family && !slices.ContainsFunc(has, func(a netlink.Addr) bool { return address(a) == own }) {
		return nil, nil
	}
	made, err := copies(bridge, family)
	has = onBridge(has, own)
	return slices.DeleteFunc(made, func(c netlink.Addr) bool {
		return slices.ContainsFunc(has, func(h netlink.Addr) bool {
			return c.Equal(h) || !own.IsValid() && family == netlink.FAMILY_V6 && c.IP.Equal(h.IP)
		})
	}), err
}

// withoutStale leaves out stale copies, which do not move back to the uplink, and leased addresses of Egresses, which have a
// limit of time that give does not copy. It keeps the source addresses of routes, because these belong to the node.
func (m *mover) withoutStale(addrs []netlink.Addr, family int) ([]netlink.Addr, error) {
	leased, err := marked(m.from, family, hostnet.Protocol)
	if err != nil {
		return nil, err
	}
	addrs = slices.DeleteFunc(addrs, func(a netlink.Addr) bool { return slices.ContainsFunc(leased, a.Equal) })
	old, err := stale(m.to, m.from, family, netip.Addr{})
	if err != nil || len(old) == 0 {
		return addrs, err
	}
	all, err := routes(m.from, family)
	return slices.DeleteFunc(addrs, func(a netlink.Addr) bool {
		source := func(r netlink.Route) bool { return r.Src.Equal(a.IP) }
		return slices.ContainsFunc(old, a.Equal) && !slices.ContainsFunc(all, source)
	}), err
}

// forget removes the stale copies from the bridge, and counts them.
func (m *mover) forget() (int, error) {
	gone := 0
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		old, err := stale(m.from, m.to, family, m.own)
		if err != nil {
			return gone, err
		}
		if len(old) > 0 && family == netlink.FAMILY_V4 {
			// Otherwise the kernel may remove other addresses of the prefix too, and with the last
			// one all routes.
			if err := sysctl.Write("net/ipv4/conf/"+m.to.Attrs().Name+"/promote_secondaries", "1"); err != nil {
				return gone, err
			}
		}
		for _, a := range old {
			if err := netlink.AddrDel(m.to, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
				return gone, fmt.Errorf("remove %s, which %s no longer has, from %s: %w", a.IPNet, m.from.Attrs().Name, m.to.Attrs().Name, err)
			}
			gone++
		}
	}
	return gone, nil
}
