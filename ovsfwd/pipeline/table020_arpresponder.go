package pipeline

// Table 20, ARP responder: answers for the gateways of peers with the virtual
// MAC; other ARP, and neighbour discovery, is switched as on any bridge.
//
//	table=20,priority=200,arp,arp_tpa=PEERGW,arp_op=1 actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],
//	    set_field:aa:bb:cc:dd:ee:ff->eth_src,set_field:2->arp_op,move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],
//	    set_field:aa:bb:cc:dd:ee:ff->arp_sha,move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],set_field:PEERGW->arp_spa,IN_PORT
//	table=20,priority=190,arp actions=NORMAL
//	table=20,priority=190,icmp6,ipv6_dst=fe80::/10,icmp_type=135 actions=NORMAL    (and 136; ff02::/16, and own pod prefixes)
//	table=20,priority=0 actions=drop
//
// NORMAL floods to the tunnel port too. The port is flow based and no outer
// destination is set here, so nothing leaves by it. Neighbour discovery to destinations beyond the link would pass policy:
// the host is a router.

import (
	"net/netip"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

func arpResponderBase(n Node) []openflow.Flow {
	matches := []openflow.Match{openflow.ARP()}
	for _, p := range onLink(n) {
		for _, t := range []uint8{neighbourSolicitation, neighbourAdvert} {
			matches = append(matches, openflow.ICMPv6(t).Prefix(openflow.IPv6Dst, p))
		}
	}
	flows := []openflow.Flow{drop(TableARPResponder)}
	for _, m := range matches {
		flows = append(flows, openflow.Flow{
			Table: TableARPResponder, Priority: priorityLow, Match: m, Actions: []openflow.Action{openflow.OutputNormal()},
		})
	}
	return flows
}

// onLink returns the IPv6 destinations of the bridge's link.
func onLink(n Node) []netip.Prefix {
	all := []netip.Prefix{netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff02::/16")}
	for _, p := range n.PodCIDRs {
		if !isIPv4(p.Addr()) {
			all = append(all, p)
		}
	}
	return all
}

func arpResponderPeer(p *model.Node) []openflow.Flow {
	gw := p.Gateway(model.IPv4)
	if !gw.IsValid() {
		return nil
	}
	const request, reply = 1, 2
	return []openflow.Flow{{
		Table: TableARPResponder, Priority: priorityNormal,
		Match: openflow.ARP().Addr(openflow.ARPTpa, gw).ARPOperation(request),
		Actions: []openflow.Action{
			openflow.Copy(openflow.EthSrc, openflow.EthDst),
			openflow.SetMAC(openflow.EthSrc, VirtualMAC()),
			openflow.SetARPOperation(reply),
			openflow.Copy(openflow.ARPSha, openflow.ARPTha),
			openflow.SetMAC(openflow.ARPSha, VirtualMAC()),
			openflow.Copy(openflow.ARPSpa, openflow.ARPTpa),
			openflow.SetAddr(openflow.ARPSpa, gw),
			openflow.OutputInPort(),
		},
	}}
}
