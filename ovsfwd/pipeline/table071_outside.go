package pipeline

// Table 71, to the outside, in the full pipeline: packets of pods that no other pod and no peer gets go to the host.
//
//	table=71,priority=100,ip,dl_dst=00:00:00:00:00:00/01:00:00:00:00:00 actions=set_field:GWMAC->eth_dst,goto_table:80    (and ipv6)
//	table=71,priority=0 actions=goto_table:80
//
// The reference chooses the source of packets here, for Egresses. Ours work under every backend, so the host chooses it.

import (
	"net"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

func outsideFull(n Node) []openflow.Flow {
	flows := []openflow.Flow{{Table: TableOutside, Priority: priorityDefault, Match: openflow.Any(), Actions: jump(TableL2Forwarding)}}
	// All but broadcast and multicast, which no table knows a port for.
	unicast, group := make(net.HardwareAddr, 6), net.HardwareAddr{1, 0, 0, 0, 0, 0}
	for _, ip := range ipFamilies() {
		flows = append(flows, openflow.Flow{
			Table: TableOutside, Priority: priorityOutside, Match: ip.MaskedMAC(openflow.EthDst, unicast, group),
			Actions: []openflow.Action{openflow.SetMAC(openflow.EthDst, n.GatewayMAC), openflow.GotoTable(TableL2Forwarding)},
		})
	}
	return flows
}
