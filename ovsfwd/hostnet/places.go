package hostnet

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"

	socket "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
)

// loopback is the index of the loopback interface in each network namespace (LOOPBACK_IFINDEX of the kernel).
const loopback = 1

// places finds the interface by which neighbours reach an address that this node adds:
//
//   - the one whose prefix has the address. Its neighbours ask for it there;
//   - else the one by which packets leave, with the address as their source: that of the default route. The routers that answer are there;
//   - else the one with the node's address.
//
// These differ on nodes with a network of their own for the outside. Of a userspace bridge and its uplink (package uplink), the
// uplink gets an address, and the bridge a copy; the bridge itself gets a leased one, because a copy has no limit of time.
type places struct {
	all  []extra
	node []netip.Addr
	// out are the interfaces of the best default routes, by family.
	out map[model.Family][]int32
}

func newPlaces(s *socket.Conn, all []extra, node []netip.Addr) (*places, error) {
	p := &places{all: all, node: node, out: map[model.Family][]int32{}}
	for _, f := range model.Families() {
		out, err := defaultInterfaces(s, f)
		if err != nil {
			return nil, err
		}
		p.out[f] = out
	}
	return p, nil
}

// of returns the interface for an address.
func (p *places) of(addr netip.Addr, leased bool) (index int32, ok bool) {
	if e := p.linked(addr); e != nil {
		return p.pair(e, leased), true
	}
	out := p.out[model.FamilyOf(addr)]
	if len(out) > 0 && !slices.ContainsFunc(p.all, func(e extra) bool { return slices.Contains(out, e.index) && p.isNode(&e) }) {
		return out[0], true
	}
	if len(out) == 0 {
		// The default route may be away for a moment only.
		for _, e := range p.all {
			if e.ours && e.addr == addr && e.limited == leased {
				return e.index, true
			}
		}
	}
	for _, same := range []bool{true, false} {
		for _, e := range p.all {
			if p.isNode(&e) && (e.addr.Is4() == addr.Is4()) == same {
				return p.pair(&e, leased), true
			}
		}
	}
	return 0, false
}

// isNode reports whether an address is the node's own.
func (p *places) isNode(e *extra) bool { return !e.ours && slices.Contains(p.node, e.addr) }

// linked returns an address of another program with the longest prefix that has the address. Of several, it is the node's own.
func (p *places) linked(addr netip.Addr) *extra {
	var best *extra
	rank := func(e *extra) int {
		if p.isNode(e) {
			return 1
		}
		return 0
	}
	for i := range p.all {
		e := &p.all[i]
		if e.ours || e.index == loopback || e.addr == addr || !e.link.Contains(addr) {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(e.link.Bits(), best.link.Bits()), cmp.Compare(rank(e), rank(best))) > 0 {
			best = e
		}
	}
	return best
}

// pair returns the interface of an address, or of its copy or original if there is one and it is that which is asked for.
func (p *places) pair(e *extra, copied bool) int32 {
	for _, other := range p.all {
		if other.addr == e.addr && !other.ours && other.copied == copied {
			return other.index
		}
	}
	return e.index
}

// defaultInterfaces returns the interfaces of the default route of a family with the least metric, in the main table.
func defaultInterfaces(s *socket.Conn, f model.Family) ([]int32, error) {
	routes, err := listHops(s, f)
	if err != nil {
		return nil, err
	}
	var best []int32
	least := uint32(math.MaxUint32)
	for _, r := range routes {
		switch {
		case !r.byDefault || len(r.out) == 0 || r.metric > least:
		case r.metric < least:
			best, least = r.out, r.metric
		default:
			best = append(best, r.out...) // IPv6 lists each next hop as a route
		}
	}
	return best, nil
}

// hopsOf are the interfaces and the next hops of a route.
type hopsOf struct {
	// byDefault is set for a default route of the main table.
	byDefault bool
	metric    uint32
	out       []int32
	via       []netip.Addr
}

// listHops returns the unicast routes of a family, of all tables.
func listHops(s *socket.Conn, f model.Family) ([]hopsOf, error) {
	data := make([]byte, unix.SizeofRtMsg)
	data[0] = unix.AF_INET
	if f == model.IPv6 {
		data[0] = unix.AF_INET6
	}
	answers, err := s.Execute(socket.Message{Header: socket.Header{Type: unix.RTM_GETROUTE, Flags: socket.Request | socket.Dump}, Data: data})
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var all []hopsOf
	for _, m := range answers {
		// struct rtmsg: family, length of the destination, ..., table, protocol, scope, type.
		if m.Header.Type != unix.RTM_NEWROUTE || len(m.Data) < unix.SizeofRtMsg || m.Data[0] != data[0] || m.Data[7] != unix.RTN_UNICAST {
			continue
		}
		r := hopsOf{byDefault: m.Data[1] == 0 && m.Data[4] == unix.RT_TABLE_MAIN}
		if err := r.read(m.Data[unix.SizeofRtMsg:]); err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		all = append(all, r)
	}
	return all, nil
}

// read reads the attributes of a route, or of one of its next hops.
func (r *hopsOf) read(attributes []byte) error {
	d, err := socket.NewAttributeDecoder(attributes)
	if err != nil {
		return err
	}
	for d.Next() {
		b := d.Bytes()
		switch d.Type() {
		case unix.RTA_PRIORITY:
			r.metric = d.Uint32()
		case unix.RTA_OIF:
			r.out = append(r.out, int32(d.Uint32()))
		case unix.RTA_GATEWAY:
			r.through(b)
		case unix.RTA_VIA:
			if len(b) > 2 {
				r.through(b[2:]) // struct rtvia: family, address
			}
		case unix.RTA_MULTIPATH:
			if err := r.readEach(b); err != nil {
				return err
			}
		}
	}
	return d.Err()
}

func (r *hopsOf) through(b []byte) {
	if a, ok := netip.AddrFromSlice(b); ok {
		r.via = append(r.via, a)
	}
}

// readEach reads the next hops of a route with several.
func (r *hopsOf) readEach(b []byte) error {
	for len(b) >= unix.SizeofRtNexthop {
		// struct rtnexthop: length, flags, hops, interface; attributes.
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.SizeofRtNexthop || n > len(b) {
			return fmt.Errorf("a next hop of %d bytes in %d", n, len(b))
		}
		r.out = append(r.out, int32(binary.NativeEndian.Uint32(b[4:])))
		if err := r.read(b[unix.SizeofRtNexthop:n]); err != nil {
			return err
		}
		b = b[min(len(b), (n+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1)):]
	}
	return nil
}
