package hostnet

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
)

// State is the desired state of the host's network.
type State struct {
	// Gateway is the interface name of the gateway port, which must exist.
	Gateway string
	// Device is the interface name of the WireGuard device, which must exist; empty without one.
	Device string
	// GatewayAddresses are the port's addresses with the length of the pod
	// prefix.
	GatewayAddresses []netip.Prefix
	// NodeAddresses are this node's own addresses: the source towards peers'
	// pods.
	NodeAddresses []netip.Addr
	Peers         []Peer
	// Pods are the MAC addresses behind this node's pod addresses. Each address has a route and a permanent neighbour. The rest
	// of the pod prefix is unreachable: the kernel would ask for each address, and keep an entry for it.
	Pods map[netip.Addr]net.HardwareAddr
	// VirtualMAC is the address that every peer gateway has.
	VirtualMAC net.HardwareAddr
	// RouteTable and RulePriority belong to the policy rule for packets that come in by
	// the gateway port for a peer's own address.
	RouteTable, RulePriority int
	// NodesByUplink leaves packets of pods to the nodes' own addresses to the host's routes: the bridge does not take them.
	NodesByUplink bool
	// Away has packets from the gateway port with AwayMark led back there, to a next hop with AwayMAC, by a rule and a table of the
	// next numbers.
	Away     bool
	AwayMark uint32
	AwayMAC  net.HardwareAddr
}

// Peer is another node.
type Peer struct {
	PodCIDRs []netip.Prefix
	// Gateways are the peer's gateway addresses, one a family.
	Gateways      []netip.Addr
	NodeAddresses []netip.Addr
	// Routed are the families in which the peer's own address is the next hop to its pods; the peer is on a
	// subnet of this node. In the families of Left, the node network knows the way. In those of Encrypted, the
	// WireGuard device leads to the peer. In all others the tunnel behind the gateway port does.
	Routed, Left, Encrypted []model.Family
}

// Protocol is the route protocol number of our routes (rtm_protocol,
// rtnetlink(7)); iproute2 knows no other program by it.
const Protocol = 208

// CopyProtocol is the protocol number of addresses that package uplink copies to a bridge. The kernel uses the numbers
// up to 3 itself.
const CopyProtocol = 0xfe

// Defaults of the policy rule: the priority is before the main table's 32766 and
// after the usual priorities of administrators.
const (
	DefaultRouteTable   = 20800
	DefaultRulePriority = 20800
)

// route is a desired route.
type route struct {
	dst    netip.Prefix
	via    netip.Addr
	src    netip.Addr
	table  int
	family model.Family
	// direct routes lead to the peer's own address, encrypted ones into the WireGuard device, unreachable ones nowhere, the
	// others through the gateway port.
	direct, encrypted, unreachable bool
}

// String names a route by the kernel's key.
func (r route) String() string {
	if r.table == mainTable {
		return r.dst.String()
	}
	return fmt.Sprintf("%s table %d", r.dst, r.table)
}

// identity is the part of a route that the kernel uses as its key.
func (r route) identity() route { return route{dst: r.dst, table: r.table, family: r.family} }

// routes returns the desired routes and the neighbours that are their next hops.
func (s *State) routes() (routes []route, gateways []netip.Addr) {
	seen := map[route]bool{}
	add := func(r route) {
		// A node's address may be in its own pod CIDR, and so be its gateway's.
		if !seen[r.identity()] {
			seen[r.identity()] = true
			routes = append(routes, r)
		}
	}
	for _, p := range s.Peers {
		for _, f := range model.Families() {
			if slices.Contains(p.Left, f) {
				continue
			}
			if slices.Contains(p.Routed, f) {
				for _, c := range p.PodCIDRs {
					if model.FamilyOf(c.Addr()) == f {
						add(route{dst: c, via: first(p.NodeAddresses, f), src: first(s.NodeAddresses, f), table: mainTable, family: f, direct: true})
					}
				}
				continue
			}
			if slices.Contains(p.Encrypted, f) {
				for _, r := range s.encrypted(&p, f) {
					add(r)
				}
				continue
			}
			gw := first(p.Gateways, f)
			if !gw.IsValid() || !first(s.gatewayAddrs(), f).IsValid() {
				continue
			}
			gateways = append(gateways, gw)
			for _, c := range p.PodCIDRs {
				if model.FamilyOf(c.Addr()) == f {
					add(route{dst: c, via: gw, src: first(s.NodeAddresses, f), table: mainTable, family: f})
				}
			}
			if a := first(p.NodeAddresses, f); a.IsValid() && !s.NodesByUplink {
				add(route{dst: netip.PrefixFrom(a, a.BitLen()), via: gw, table: s.RouteTable, family: f})
			}
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(s.Pods), netip.Addr.Compare) {
		if len(s.Pods[a]) > 0 && s.ownPrefix(a) {
			add(route{dst: netip.PrefixFrom(a, a.BitLen()), table: mainTable, family: model.FamilyOf(a)})
		}
	}
	for _, p := range s.GatewayAddresses {
		add(route{dst: p.Masked(), table: mainTable, family: model.FamilyOf(p.Addr()), unreachable: true})
	}
	for _, f := range model.Families() {
		if s.Away && first(s.gatewayAddrs(), f).IsValid() {
			for _, r := range s.awayRoutes(f) {
				add(r)
			}
		}
	}
	return routes, gateways
}

// encrypted returns the routes by the WireGuard device to a peer: to its pods, and for packets of pods to its own
// address. A node without pods of the family has none.
func (s *State) encrypted(p *Peer, f model.Family) (all []route) {
	if !first(s.gatewayAddrs(), f).IsValid() {
		return nil
	}
	for _, c := range p.PodCIDRs {
		if model.FamilyOf(c.Addr()) == f {
			all = append(all, route{dst: c, src: first(s.NodeAddresses, f), table: mainTable, family: f, encrypted: true})
		}
	}
	if a := first(p.NodeAddresses, f); a.IsValid() {
		all = append(all, route{dst: netip.PrefixFrom(a, a.BitLen()), table: s.RouteTable, family: f, encrypted: true})
	}
	return all
}

// awayHop is the next hop of packets with AwayMark. No node and no pod may have it.
func awayHop(f model.Family) netip.Addr {
	if f == model.IPv4 {
		return netip.AddrFrom4([4]byte{169, 254, 20, 21})
	}
	return netip.AddrFrom16([16]byte{0xfd, 0x66, 0x65, 0x6c, 0x69, 0x78, 15: 0x21})
}

// awayRoutes leads all destinations of a family to the next hop. They are two halves: a default route has another form in
// messages of the kernel.
func (s *State) awayRoutes(f model.Family) []route {
	hop := awayHop(f)
	low, high := make([]byte, hop.BitLen()/8), make([]byte, hop.BitLen()/8)
	high[0] = 0x80
	var all []route
	for _, half := range [][]byte{low, high} {
		a, _ := netip.AddrFromSlice(half)
		all = append(all, route{dst: netip.PrefixFrom(a, 1), via: hop, table: s.RouteTable + 1, family: f})
	}
	return all
}

// policyRule is a desired policy rule for packets that come in by the gateway port. With mark zero, the rule matches any mark.
type policyRule struct {
	priority, table int
	mark            uint32
}

// policyRules returns the policy rules of a family.
func (s *State) policyRules(f model.Family) (all []policyRule) {
	if !first(s.gatewayAddrs(), f).IsValid() {
		return nil
	}
	all = append(all, policyRule{priority: s.RulePriority, table: s.RouteTable})
	if s.Away {
		all = append(all, policyRule{s.RulePriority + 1, s.RouteTable + 1, s.AwayMark})
	}
	return all
}

// neighbours returns the desired permanent neighbours: the peers' gateways and
// this node's pods.
func (s *State) neighbours() map[netip.Addr]string {
	wanted := map[netip.Addr]string{}
	for a, mac := range s.Pods {
		if len(mac) > 0 {
			wanted[a] = string(mac)
		}
	}
	_, gateways := s.routes()
	for _, g := range gateways {
		wanted[g] = string(s.VirtualMAC)
	}
	for _, f := range model.Families() {
		if s.Away && first(s.gatewayAddrs(), f).IsValid() {
			wanted[awayHop(f)] = string(s.AwayMAC)
		}
	}
	return wanted
}

// portAddresses returns the gateway port's addresses as the kernel has them. They have no route of their prefix: IPv4 addresses
// are single, those of IPv6 have a flag, which the kernel can set without taking the address away.
func (s *State) portAddresses() []netip.Prefix {
	all := slices.Clone(s.GatewayAddresses)
	for i, p := range all {
		if p.Addr().Is4() {
			all[i] = netip.PrefixFrom(p.Addr(), p.Addr().BitLen())
		}
	}
	return all
}

// ownPrefix reports whether an address is in one of this node's pod prefixes.
func (s *State) ownPrefix(a netip.Addr) bool {
	return slices.ContainsFunc(s.GatewayAddresses, func(p netip.Prefix) bool { return p.Contains(a) })
}

func (s *State) gatewayAddrs() []netip.Addr {
	var all []netip.Addr
	for _, p := range s.GatewayAddresses {
		all = append(all, p.Addr())
	}
	return all
}

func first(addrs []netip.Addr, f model.Family) netip.Addr {
	for _, a := range addrs {
		if model.FamilyOf(a) == f {
			return a
		}
	}
	return netip.Addr{}
}

const mainTable = unix.RT_TABLE_MAIN
