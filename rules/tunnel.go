package rules

import (
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

const (
	// priorityTunnel is before all rules of firewalls at INPUT, which may look at the mark.
	priorityTunnel = -450
	// priorityTunnelPassed is behind them, and behind conntrack's helpers (300).
	priorityTunnelPassed = 500
)

// NodesOf returns the set of the addresses of all nodes in one family.
func NodesOf(f model.Family) ipsets.Set {
	return ipsets.Set{Name: NodesSet(f), Kind: model.Addresses, Family: f}
}

// Tunnel renders the chains that close the UDP port of the tunnel to strangers. They are in a table of their own, for
// every backend:
//
//	tunnel (input, before all firewalls)
//	  to the port, from an address of a node ......... mark as believed
//	  to the port .................................... drop
//	tunnel-passed (input, behind all firewalls)
//	  to the port .................................... clear the mark
//
// At INPUT all fragments of a packet are together, so each of them has passed. The kernel's datapath takes packets
// of the tunnel from a UDP socket, behind INPUT. The userspace datapath takes them before the host: there the tunnel
// guard alone drops them. Of a node's addresses the tunnel guard believes those of the set only, so the chains cut
// no peer.
func (n NodeChains) Tunnel(port uint16) []tables.Chain {
	toPort := []tables.Match{tables.MatchProtocol{Protocol: model.UDP}, tables.MatchDestinationPorts{First: port, Last: port}}
	to := func(more ...tables.Match) []tables.Match { return append(toPort[:len(toPort):len(toPort)], more...) }
	input := func(name string, priority int32) tables.Chain {
		return tables.Chain{
			Name: name, Origin: tables.OfEveryPod{},
			Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookInput, Priority: priority},
		}
	}
	first, last := input(ChainTunnel, priorityTunnel), input(ChainTunnelPassed, priorityTunnelPassed)
	for _, f := range model.Families() {
		first.Rules = append(first.Rules, tables.Rule{
			Matches: to(tables.MatchSet{Family: f, Side: tables.Source, Set: NodesSet(f)}),
			Action:  tables.SetMarkAndReturn{Value: MarkBelieved, Mask: MarkBelieved}, Comment: "tunnel packet of a node",
		})
	}
	first.Rules = append(first.Rules, tables.Rule{Matches: to(), Action: tables.Drop{}, Comment: "tunnel packet of a stranger"})
	last.Rules = []tables.Rule{{
		Matches: to(), Action: tables.SetMark{Value: 0, Mask: MarkBelieved}, Comment: "the packet inside gets no mark",
	}}
	return []tables.Chain{first, last}
}
