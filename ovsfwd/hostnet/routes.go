package hostnet

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/listing"
	"github.com/felixlike/felixlike/model"
)

// nextHops returns the current next hops of our routes. A permanent neighbour is ours if it is
// one of them, if it is a pod, or if it has the virtual MAC. Other programs may have
// neighbours here too.
func (p *pass) nextHops() (map[netip.Addr]bool, error) {
	hops := map[netip.Addr]bool{}
	for _, f := range model.Families() {
		routes, err := p.ourRoutes(f)
		if err != nil {
			return nil, err
		}
		for i := range routes {
			if r := routeOf(&routes[i], f); routes[i].LinkIndex == p.link.Attrs().Index {
				if hops[r.via] = true; r.dst.IsSingleIP() && !r.via.IsValid() {
					hops[r.dst.Addr()] = true // a pod
				}
			}
		}
	}
	return hops, nil
}

// ourRoutes lists the routes of our protocol number in every table.
func (p *pass) ourRoutes(f model.Family) ([]netlink.Route, error) {
	filter := &netlink.Route{Protocol: Protocol, Table: unix.RT_TABLE_UNSPEC}
	return listing.Whole(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlinkFamily(f), filter, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	})
}

func (p *pass) routes() {
	lacks := map[route]bool{}
	for _, r := range p.wanted.inOrder {
		lacks[r] = !r.encrypted || p.device != 0
	}
	for _, f := range model.Families() {
		actual, err := p.ourRoutes(f)
		if err != nil {
			p.fail("list routes", err)
			return
		}
		for i := range actual {
			r := routeOf(&actual[i], f)
			r.encrypted = p.device != 0 && actual[i].LinkIndex == p.device
			r.direct = !r.encrypted && !r.unreachable && (p.link == nil || actual[i].LinkIndex != p.link.Attrs().Index)
			if lacks[r] {
				delete(lacks, r)
				continue
			}
			// The unreachable route has a metric, so that it does not replace another one.
			if now, ok := p.wanted.byID[r.identity()]; ok && lacks[now] && now.unreachable == r.unreachable {
				// Replaced in one step: without a route, packets to a peer's
				// pods would follow the default route out of the cluster.
				ok := p.write(fmt.Sprintf("replace route %s", r), p.replace(r, now))
				if ok && p.again() && p.before.hasRoute(now) {
					p.log.add(kindRoute, now.String(), "changed")
				}
				delete(lacks, now)
				continue
			}
			ok := p.write(fmt.Sprintf("remove route %s", r), netlink.RouteDel(&actual[i]))
			if ok && p.again() && !p.before.hasRoute(r) {
				p.log.add(kindRoute, r.String(), "foreign")
			}
		}
	}
	for _, r := range p.wanted.inOrder {
		if !lacks[r] {
			continue
		}
		// Added, not replaced: an existing route with this prefix is not ours.
		ok := p.write(fmt.Sprintf("add route %s via %s table %d", r.dst, r.via, r.table), netlink.RouteAdd(p.routeMessage(r)))
		if ok && p.again() && p.before.hasRoute(r) {
			p.log.add(kindRoute, r.String(), missing)
		}
	}
}

// replace replaces a route in one step. The kernel refuses an IPv6 next hop that a route leads to another
// interface than the new route's, and a route to a routed peer does so with the gateway of that peer. So a
// route to the gateway alone is there for the time of the replacement.
func (p *pass) replace(old, now route) error {
	message := p.routeMessage(now)
	if now.family != model.IPv6 || now.direct || now.encrypted || !old.direct {
		return netlink.RouteReplace(message)
	}
	lead := &netlink.Route{LinkIndex: message.LinkIndex, Dst: netOf(netip.PrefixFrom(now.via, now.via.BitLen())), Protocol: Protocol}
	if err := netlink.RouteReplace(lead); err != nil {
		return fmt.Errorf("lead to %s: %w", now.via, err)
	}
	return errors.Join(netlink.RouteReplace(message), netlink.RouteDel(lead))
}

// unreachableMetric is worse than that of the route that the kernel adds with an address of the gateway port. An earlier version
// has such a route, until the routes to the pods are there.
const unreachableMetric = 1 << 20

func (p *pass) routeMessage(r route) *netlink.Route {
	n := &netlink.Route{
		LinkIndex: p.link.Attrs().Index, Dst: netOf(r.dst), Gw: r.via.AsSlice(), Table: r.table,
		Protocol: Protocol, Flags: int(netlink.FLAG_ONLINK),
	}
	switch {
	case r.unreachable:
		n.LinkIndex, n.Flags, n.Type, n.Priority = 0, 0, unix.RTN_UNREACHABLE, unreachableMetric
	case !r.via.IsValid() && !r.encrypted:
		n.Flags = 0
		if r.family == model.IPv4 {
			n.Scope = netlink.SCOPE_LINK
		}
	case r.encrypted:
		n.LinkIndex, n.Flags = p.device, 0
		if r.family == model.IPv4 {
			n.Scope = netlink.SCOPE_LINK
		}
	case r.direct:
		// The kernel finds the interface by the next hop, which is on a subnet of this node.
		n.LinkIndex, n.Flags = 0, 0
	}
	if r.src.IsValid() {
		n.Src = r.src.AsSlice()
	}
	return n
}
