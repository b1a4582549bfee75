package uplink

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/sysctl"
)

const (
	// ifaProto is IFA_PROTO of linux/if_addr.h: who has made an address. Kernels
	// before 5.18 pass over it.
	ifaProto = 11
	// copyProto says that an address on the bridge's local port is a copy of one of
	// the uplink. The kernel gives the numbers to 3 itself.
	copyProto = 0xfe
)

// give copies an address. Whoever renews a lease does so where he got it: a copy
// with a lifetime would expire, and the routes with it.
func (m *mover) give(a netlink.Addr) error {
	family := nl.GetIPFamily(a.IP)
	// What the kernel does for an address is done where that is from; deprecated is
	// what nobody is to begin a connection by.
	flags := uint32(a.Flags) & unix.IFA_F_NOPREFIXROUTE
	life := unix.IfaCacheinfo{Valid: math.MaxUint32, Prefered: math.MaxUint32}
	if a.Flags&unix.IFA_F_DEPRECATED != 0 {
		life.Prefered = 0
	}
	local := a.IP.To4()
	if family == netlink.FAMILY_V6 {
		// The address is ours already, and still on the old interface:
		// detection would find a duplicate.
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

// there reports whether an address needs no copy. On the way back the uplink's own
// is as whoever made it wants it; on the bridge one that will expire is none.
func (m *mover) there(has []netlink.Addr, a netlink.Addr) bool {
	return slices.ContainsFunc(has, func(h netlink.Addr) bool {
		return h.Equal(a) && (m.back || h.Flags&unix.IFA_F_PERMANENT != 0 && (h.Flags^a.Flags)&unix.IFA_F_DEPRECATED == 0)
	})
}

// copies are those addresses of an interface that give has made.
func copies(link netlink.Link, family int) ([]netlink.Addr, error) {
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
	marked := map[netip.Addr]bool{}
	for _, m := range messages {
		msg := nl.DeserializeIfAddrmsg(m)
		if int(msg.Index) != link.Attrs().Index || int(msg.Family) != family {
			continue
		}
		attrs, err := nl.ParseRouteAttrAsMap(m[msg.Len():])
		if err != nil {
			return nil, fmt.Errorf("list addresses: %w", err)
		}
		local, with := attrs[unix.IFA_LOCAL]
		if !with {
			local = attrs[unix.IFA_ADDRESS]
		}
		ip, _ := netip.AddrFromSlice(local.Value)
		proto := attrs[ifaProto].Value
		marked[ip] = len(proto) == 1 && proto[0] == copyProto
	}
	return slices.DeleteFunc(all, func(a netlink.Addr) bool { return !marked[address(a)] }), nil
}

func address(a netlink.Addr) netip.Addr {
	ip, _ := netip.AddrFromSlice(a.IP)
	return ip.Unmap()
}

// stale are the copies on the bridge of what the uplink has no more: an address
// that other nodes may have now, as those of keepalived. An uplink that has lost
// what makes the node reachable says nothing: then there are none.
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
	return slices.DeleteFunc(made, func(c netlink.Addr) bool { return slices.ContainsFunc(has, c.Equal) }), err
}

// withoutStale leaves out what is not to be given back. What routes have as their
// source is the node's own.
func (m *mover) withoutStale(addrs []netlink.Addr, family int) ([]netlink.Addr, error) {
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

// forget removes from the bridge the copies that are stale, and counts them.
func (m *mover) forget(own netip.Addr) (int, error) {
	gone := 0
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		old, err := stale(m.from, m.to, family, own)
		if err != nil {
			return gone, err
		}
		if len(old) > 0 && family == netlink.FAMILY_V4 {
			// Else others of the same prefix may go too, and with the last one all routes.
			if err := sysctl.Write("net/ipv4/conf/"+m.to.Attrs().Name+"/promote_secondaries", "1"); err != nil {
				return gone, err
			}
		}
		for _, a := range old {
			if err := netlink.AddrDel(m.to, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
				return gone, fmt.Errorf("remove %s, which %s has no more, from %s: %w", a.IPNet, m.from.Attrs().Name, m.to.Attrs().Name, err)
			}
			gone++
		}
	}
	return gone, nil
}
