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
	// priorityUntracked is before connection tracking (-200), and behind raw (-300) of other programs.
	priorityUntracked = -250
)

// DroppedStrangers is the counter of the packets that TunnelChains drop.
func DroppedStrangers(port uint16) Counter {
	first := TunnelChains(port)[0]
	return Counter{first.Name, first.Rules[len(first.Rules)-1].Hash()}
}

// NodesOf returns the set of the addresses of all nodes in one family.
func NodesOf(f model.Family) ipsets.Set {
	return ipsets.Set{Name: NodesSet(f), Kind: model.Addresses, Family: f}
}

// TunnelChains renders the chains that close the UDP port of the tunnel to strangers. They are in a table of their own, for
// every backend:
//
//	tunnel (input, before all firewalls)
//	  to the port, from an address of a node ......... mark as believed
//	  to the port .................................... drop
//	tunnel-passed (input, behind all firewalls)
//	  to the port .................................... clear the mark
//	tunnel-received (prerouting, before connection tracking)
//	  to the port, from an address of a node ......... do not track
//	tunnel-sent (output, before connection tracking)
//	  to the port, to an address of a node ........... do not track
//
// conntrack would have an entry for each source port that a tunnel uses, and nobody needs them: it tracks the
// packets inside.
//
// At INPUT all fragments of a packet are together, so each of them has passed. The kernel's datapath takes packets
// of the tunnel from a UDP socket, behind INPUT. The userspace datapath takes them before the host: there the tunnel
// guard alone drops them. Of a node's addresses the tunnel guard believes those of the set only, so the chains cut
// no peer.
func TunnelChains(port uint16) []tables.Chain {
	toPort := []tables.Match{tables.MatchProtocol{Protocol: model.UDP}, tables.MatchDestinationPorts{First: port, Last: port}}
	to := func(more ...tables.Match) []tables.Match { return append(toPort[:len(toPort):len(toPort)], more...) }
	base := func(name string, at tables.HookPoint, priority int32, all ...tables.Rule) tables.Chain {
		return tables.Chain{
			Name: name, Origin: tables.OfEveryPod{}, Rules: all,
			Hook: &tables.Hook{Type: tables.HookFilter, Point: at, Priority: priority},
		}
	}
	first := base(ChainTunnel, tables.HookInput, priorityTunnel)
	for _, f := range model.Families() {
		first.Rules = append(first.Rules, tables.Rule{
			Matches: to(tables.MatchSet{Family: f, Side: tables.Source, Set: NodesSet(f)}),
			Action:  tables.SetMarkAndReturn{Value: MarkBelieved, Mask: MarkBelieved}, Comment: "tunnel packet of a node",
		})
	}
	first.Rules = append(first.Rules, tables.Rule{Matches: to(), Action: tables.Drop{}, Comment: "tunnel packet of a stranger"})
	untracked := func(side tables.Side) (all []tables.Rule) {
		for _, f := range model.Families() {
			all = append(all, tables.Rule{
				Matches: to(tables.MatchSet{Family: f, Side: side, Set: NodesSet(f)}),
				Action:  tables.NoTrack{}, Comment: "tunnel packets are not tracked",
			})
		}
		return all
	}
	return []tables.Chain{
		first,
		base(ChainTunnelPassed, tables.HookInput, priorityTunnelPassed, tables.Rule{
			Matches: to(), Action: tables.SetMark{Value: 0, Mask: MarkBelieved}, Comment: "the packet inside gets no mark",
		}),
		base(ChainTunnelReceived, tables.HookPrerouting, priorityUntracked, untracked(tables.Source)...),
		base(ChainTunnelSent, tables.HookOutput, priorityUntracked, untracked(tables.Destination)...),
	}
}
