package hostnet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
)

const mainTable = unix.RT_TABLE_MAIN

// Reconciler brings the host's network to the wanted state. It is used from
// one goroutine.
type Reconciler struct {
	wanted *State
	// mtu is that of the gateway port in bytes; 0 leaves it.
	mtu int
	// clean says that the kernel is in sync with the desired state.
	clean bool
}

// NewReconciler returns a reconciler that wants nothing yet.
func NewReconciler() *Reconciler { return &Reconciler{} }

// SetState replaces the desired state.
func (r *Reconciler) SetState(s State) {
	r.wanted = &s
	r.clean = false
}

// SetMTU sets the MTU of the gateway port.
func (r *Reconciler) SetMTU(mtu int) {
	r.clean = r.clean && mtu == r.mtu
	r.mtu = mtu
}

// Invalidate makes the next Apply look at the kernel again.
func (r *Reconciler) Invalidate() { r.clean = false }

// Apply writes the differences and returns the number of writes. After a failed write
// it goes on with the others; the errors are joined.
func (r *Reconciler) Apply(context.Context) (int, error) {
	if r.clean || r.wanted == nil {
		return 0, nil
	}
	link, err := netlink.LinkByName(r.wanted.Gateway)
	if err != nil {
		return 0, fmt.Errorf("gateway port %s: %w", r.wanted.Gateway, err)
	}
	p := &pass{state: r.wanted, link: link, mtu: r.mtu}
	p.sysctls()
	p.device()
	p.addresses()
	p.neighbours()
	p.routes()
	p.rules()
	err = errors.Join(p.errs...)
	r.clean = err == nil
	return p.writes, err
}

// Remove undoes the writes of earlier runs for a gateway port of that name, except
// for sysctls, which others may rely on by now. It may be repeated.
func Remove(gateway string, table, priority int) error {
	p := &pass{state: &State{Gateway: gateway, RouteTable: table, RulePriority: priority}}
	link, err := netlink.LinkByName(gateway)
	switch {
	case err == nil:
		p.link = link
		p.addresses()
		p.neighbours()
		p.routes()
	case !errors.As(err, &netlink.LinkNotFoundError{}):
		return fmt.Errorf("gateway port %s: %w", gateway, err)
	}
	// Addresses, neighbours and routes go with a port; rules outlive it.
	p.rules()
	return errors.Join(p.errs...)
}

// pass is one comparison of wanted and actual.
type pass struct {
	state  *State
	mtu    int
	link   netlink.Link
	writes int
	errs   []error
}

// write counts a write and keeps its error.
func (p *pass) write(what string, err error) {
	p.writes++
	if err != nil {
		p.fail(what, err)
	}
}

func (p *pass) fail(what string, err error) {
	p.errs = append(p.errs, fmt.Errorf("%s: %w", what, err))
}

func (p *pass) device() {
	if mtu := p.mtu; mtu > 0 && p.link.Attrs().MTU != mtu {
		p.write(fmt.Sprintf("set mtu %d of %s", mtu, p.state.Gateway), netlink.LinkSetMTU(p.link, mtu))
	}
	if p.link.Attrs().Flags&net.FlagUp == 0 {
		p.write("set up "+p.state.Gateway, netlink.LinkSetUp(p.link))
	}
}

func (p *pass) addresses() {
	wanted := map[netip.Prefix]bool{}
	for _, a := range p.state.GatewayAddresses {
		wanted[a] = true
	}
	actual, err := netlink.AddrList(p.link, netlink.FAMILY_ALL)
	if err != nil {
		p.fail("list addresses of "+p.state.Gateway, err)
		return
	}
	for i := range actual {
		a := prefixOf(actual[i].IPNet)
		if wanted[a] {
			delete(wanted, a)
			continue
		}
		// The port is ours alone, but its link-local address is the kernel's.
		if !a.Addr().IsLinkLocalUnicast() {
			p.write(fmt.Sprintf("remove address %s from %s", a, p.state.Gateway), netlink.AddrDel(p.link, &actual[i]))
		}
	}
	for _, a := range p.state.GatewayAddresses {
		if !wanted[a] {
			continue
		}
		addr := &netlink.Addr{IPNet: netOf(a)}
		if a.Addr().Is6() {
			// No duplicate is possible: spoofguard pins the address to this port.
			addr.Flags = unix.IFA_F_NODAD
		}
		p.write(fmt.Sprintf("add address %s to %s", a, p.state.Gateway), netlink.AddrAdd(p.link, addr))
	}
}

func (p *pass) neighbours() {
	wanted := p.state.neighbours()
	ours, err := p.nextHops()
	if err != nil {
		p.fail("list routes", err)
		return
	}
	for _, f := range model.Families() {
		actual, err := netlink.NeighList(p.link.Attrs().Index, netlinkFamily(f))
		if err != nil {
			p.fail("list neighbours of "+p.state.Gateway, err)
			return
		}
		for i := range actual {
			n := actual[i]
			if n.State&netlink.NUD_PERMANENT == 0 || n.IP.IsMulticast() {
				continue
			}
			a := addrOf(n.IP)
			mac, want := wanted[a]
			switch {
			case want && mac == string(n.HardwareAddr):
				delete(wanted, a)
			case !want && (ours[a] || p.state.ownPrefix(a) || bytes.Equal(n.HardwareAddr, p.state.VirtualMAC)):
				p.write(fmt.Sprintf("remove neighbour %s from %s", a, p.state.Gateway), netlink.NeighDel(&n))
			}
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(wanted), netip.Addr.Compare) {
		p.write(fmt.Sprintf("set neighbour %s on %s", a, p.state.Gateway), netlink.NeighSet(&netlink.Neigh{
			LinkIndex: p.link.Attrs().Index, State: netlink.NUD_PERMANENT, Family: netlinkFamily(model.FamilyOf(a)),
			IP: a.AsSlice(), HardwareAddr: net.HardwareAddr(wanted[a]),
		}))
	}
}

// nextHops returns where our routes lead to now. A permanent neighbour is ours
// if it is one of them, a pod's or has the virtual MAC; others may have theirs
// here.
func (p *pass) nextHops() (map[netip.Addr]bool, error) {
	hops := map[netip.Addr]bool{}
	for _, f := range model.Families() {
		routes, err := p.ourRoutes(f)
		if err != nil {
			return nil, err
		}
		for i := range routes {
			if routes[i].LinkIndex == p.link.Attrs().Index {
				hops[addrOf(routes[i].Gw)] = true
			}
		}
	}
	return hops, nil
}

// ourRoutes lists the routes of our protocol number in every table.
func (p *pass) ourRoutes(f model.Family) ([]netlink.Route, error) {
	filter := &netlink.Route{Protocol: Protocol, Table: unix.RT_TABLE_UNSPEC}
	return netlink.RouteListFiltered(netlinkFamily(f), filter, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
}

func (p *pass) routes() {
	routes, _ := p.state.routes()
	wanted := map[route]bool{}
	byPrefix := map[route]route{}
	for _, r := range routes {
		wanted[r] = true
		byPrefix[r.identity()] = r
	}
	for _, f := range model.Families() {
		actual, err := p.ourRoutes(f)
		if err != nil {
			p.fail("list routes", err)
			return
		}
		for i := range actual {
			r := routeOf(&actual[i], f)
			if wanted[r] && actual[i].LinkIndex == p.link.Attrs().Index {
				delete(wanted, r)
				continue
			}
			if now, ok := byPrefix[r.identity()]; ok && wanted[now] {
				// Replaced in one step: without a route, packets to a peer's
				// pods would follow the default route out of the cluster.
				p.write(fmt.Sprintf("replace route %s table %d", r.dst, r.table), netlink.RouteReplace(p.routeMessage(now)))
				delete(wanted, now)
				continue
			}
			p.write(fmt.Sprintf("remove route %s table %d", r.dst, r.table), netlink.RouteDel(&actual[i]))
		}
	}
	for _, r := range routes {
		if wanted[r] {
			// Added, not replaced: a route of that prefix which is there is not ours.
			p.write(fmt.Sprintf("add route %s via %s table %d", r.dst, r.via, r.table), netlink.RouteAdd(p.routeMessage(r)))
		}
	}
}

func (p *pass) routeMessage(r route) *netlink.Route {
	n := &netlink.Route{
		LinkIndex: p.link.Attrs().Index, Dst: netOf(r.dst), Gw: r.via.AsSlice(), Table: r.table,
		Protocol: Protocol, Flags: int(netlink.FLAG_ONLINK),
	}
	if r.src.IsValid() {
		n.Src = r.src.AsSlice()
	}
	return n
}

func (p *pass) rules() {
	for _, f := range model.Families() {
		wanted := first(p.state.gatewayAddrs(), f).IsValid()
		actual, err := netlink.RuleList(netlinkFamily(f))
		if errors.Is(err, unix.EAFNOSUPPORT) && !wanted {
			continue // a kernel booted with ipv6.disable=1 has none
		}
		if err != nil {
			p.fail("list policy rules", err)
			return
		}
		for i := range actual {
			r := actual[i]
			if r.Priority != p.state.RulePriority || r.Table != p.state.RouteTable {
				continue
			}
			if wanted && r.IifName == p.state.Gateway {
				wanted = false
				continue
			}
			r.Family = netlinkFamily(f)
			p.write(fmt.Sprintf("remove policy rule %d", r.Priority), netlink.RuleDel(&r))
		}
		if wanted {
			r := netlink.NewRule()
			r.Family, r.Priority, r.Table, r.IifName = netlinkFamily(f), p.state.RulePriority, p.state.RouteTable, p.state.Gateway
			p.write(fmt.Sprintf("add policy rule %d", r.Priority), netlink.RuleAdd(r))
		}
	}
}

func routeOf(r *netlink.Route, f model.Family) route {
	out := route{via: addrOf(r.Gw), src: addrOf(r.Src), table: r.Table, family: f}
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
