package pipeline

// Table 10, spoofguard, neighbour discovery. SELF is an IPv6 address of the
// pod, or the link-local address made from its MAC.
//
//	table=10,priority=230,icmp6,icmp_type=135,icmp_code=0,nd_target=:: actions=drop       malformed options
//	table=10,priority=220,icmp6,nw_ttl=255,in_port=POD,dl_src=MAC,ipv6_src=SELF,icmp_type=135,icmp_code=0,nd_sll=MAC actions=goto_table:20
//	table=10,priority=220,icmp6,nw_ttl=255,in_port=POD,dl_src=MAC,ipv6_src=SELF,icmp_type=135,icmp_code=0,nd_sll=00:00:00:00:00:00 actions=goto_table:20
//	table=10,priority=220,icmp6,nw_ttl=255,in_port=POD,dl_src=MAC,ipv6_src=::,icmp_type=135,icmp_code=0,nd_target=SELF,nd_sll=00:00:00:00:00:00 actions=goto_table:20
//	table=10,priority=220,icmp6,nw_ttl=255,in_port=POD,dl_src=MAC,ipv6_src=SELF,icmp_type=136,icmp_code=0,nd_target=SELF,nd_tll=MAC actions=goto_table:20
//	table=10,priority=220,icmp6,nw_ttl=255,in_port=POD,dl_src=MAC,ipv6_src=SELF,icmp_type=136,icmp_code=0,nd_target=SELF,nd_tll=00:00:00:00:00:00 actions=goto_table:20
//	table=10,priority=220,icmp6,nw_ttl=255,in_port=GATEWAY,dl_src=GWMAC,icmp_type=135,icmp_code=0,nd_sll=GWMAC actions=goto_table:20   (and absent)
//	table=10,priority=220,icmp6,nw_ttl=255,in_port=GATEWAY,dl_src=GWMAC,icmp_type=136,icmp_code=0,nd_target=GWIP,nd_tll=GWMAC actions=goto_table:20   (and absent)
//	table=10,priority=210,icmp6,icmp_type=133 actions=drop                                 router solicitation
//	table=10,priority=210,icmp6,icmp_type=134 actions=drop                                 router advertisement
//	table=10,priority=210,icmp6,icmp_type=135 actions=drop                                 other solicitations
//	table=10,priority=210,icmp6,icmp_type=136 actions=drop                                 other advertisements
//	table=10,priority=210,icmp6,icmp_type=137 actions=drop                                 redirect
//
// A packet that a router has forwarded has a hop limit of 254 or less (RFC 4861, section 7.1.1). Table 20 has the
// destinations. From the tunnel there is none: peers' gateways are permanent neighbours.

import (
	"net"
	"net/netip"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// ICMPv6 types of neighbour discovery (RFC 4861, section 4).
const (
	routerSolicitation    uint8 = 133
	routerAdvertisement   uint8 = 134
	neighbourSolicitation uint8 = 135
	neighbourAdvert       uint8 = 136
	redirect              uint8 = 137
)

// noOption is Open vSwitch's value of an absent link-layer option.
func noOption() net.HardwareAddr { return make(net.HardwareAddr, 6) }

func neighboursBase(n Node) []openflow.Flow {
	// Of a message with malformed or doubled options Open vSwitch sees neither
	// target nor options, so that a forged one would pass for an absent one;
	// the receiver may well read the first (lib/flow.c, parse_icmpv6).
	flows := []openflow.Flow{{
		Table: TableSpoofGuard, Priority: priorityMalformed,
		Match: openflow.NeighbourDiscovery(neighbourSolicitation).Addr(openflow.NDTarget, netip.IPv6Unspecified()),
	}}
	for _, t := range []uint8{routerSolicitation, routerAdvertisement, neighbourSolicitation, neighbourAdvert, redirect} {
		flows = append(flows, openflow.Flow{Table: TableSpoofGuard, Priority: priorityHigh, Match: openflow.ICMPv6(t)})
	}
	for _, option := range []net.HardwareAddr{n.GatewayMAC, noOption()} {
		flows = append(flows, neighbour(gatewayND(n, neighbourSolicitation).MAC(openflow.NDSll, option)))
		for _, target := range gatewayTargets(n) {
			flows = append(flows, neighbour(gatewayND(n, neighbourAdvert).
				Addr(openflow.NDTarget, target).MAC(openflow.NDTll, option)))
		}
	}
	return flows
}

func gatewayND(n Node, icmpType uint8) openflow.Match {
	return openflow.NeighbourDiscovery(icmpType).InPort(n.GatewayPort).MAC(openflow.EthSrc, n.GatewayMAC)
}

func gatewayTargets(n Node) []netip.Addr { return selfAddresses(n.GatewayMAC, n.Gateways) }

func neighboursEndpoint(a *model.Attachment) []openflow.Flow {
	var flows []openflow.Flow
	base := func(icmpType uint8) openflow.Match {
		return openflow.NeighbourDiscovery(icmpType).InPort(a.OFPort).MAC(openflow.EthSrc, a.MAC)
	}
	for _, self := range selfAddresses(a.MAC, a.Addresses) {
		for _, option := range []net.HardwareAddr{a.MAC, noOption()} {
			flows = append(flows,
				neighbour(base(neighbourSolicitation).Addr(openflow.IPv6Src, self).MAC(openflow.NDSll, option)),
				neighbour(base(neighbourAdvert).Addr(openflow.IPv6Src, self).
					Addr(openflow.NDTarget, self).MAC(openflow.NDTll, option)))
		}
		// Duplicate address detection: unspecified source, no option (RFC 4862, 5.4.2).
		flows = append(flows, neighbour(base(neighbourSolicitation).Addr(openflow.IPv6Src, netip.IPv6Unspecified()).
			Addr(openflow.NDTarget, self).MAC(openflow.NDSll, noOption())))
	}
	return flows
}

// unrouted is the hop limit of messages that no router has forwarded.
const unrouted = 255

// neighbour lets a neighbour discovery message through to table 20.
func neighbour(m openflow.Match) openflow.Flow {
	return openflow.Flow{Table: TableSpoofGuard, Priority: priorityND, Match: m.TTL(unrouted), Actions: jump(TableARPResponder)}
}

// selfAddresses are the IPv6 addresses among addrs and the link-local one of
// the MAC; none if there is no IPv6 address.
func selfAddresses(mac net.HardwareAddr, addrs []netip.Addr) []netip.Addr {
	var own []netip.Addr
	for _, a := range addrs {
		if !isIPv4(a) {
			own = append(own, a)
		}
	}
	if len(own) == 0 || len(mac) != 6 {
		return own
	}
	return append(own, linkLocal(mac))
}
