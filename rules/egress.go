package rules

import (
	"net/netip"
	"strings"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

const (
	// priorityEgress is one before Sources (99), which would masquerade: NAT binds a connection's source once.
	priorityEgress = prioritySources - 1
	// priorityEgressDrops is one before that.
	priorityEgressDrops = priorityEgress - 1
	// priorityEgressGuard is after all NAT (100): the guard sees the new source.
	priorityEgressGuard = 110
	// priorityEgressWays is after proxies have rewritten the destination (-100), and before routing.
	priorityEgressWays = -90
)

// ClusterSet returns the set of all pod prefixes and all addresses of nodes in one family.
func ClusterSet(f model.Family) ipsets.Set {
	return ipsets.Set{Name: "cluster-" + f.String(), Kind: model.Networks, Family: f}
}

// EgressPodsSet returns the set of the pods whose packets to the outside get the address.
func EgressPodsSet(a netip.Addr) ipsets.Set {
	// nft takes no colon in a name.
	return ipsets.Set{Name: "pods-of-" + strings.ReplaceAll(a.String(), ":", "."), Kind: model.Addresses, Family: model.FamilyOf(a)}
}

// EgressDroppedSet returns the set of the pods of one family whose packets to the outside may not leave this node.
func EgressDroppedSet(f model.Family) ipsets.Set {
	return ipsets.Set{Name: "not-outside-" + f.String(), Kind: model.Addresses, Family: f}
}

// EgressAwaySet returns the set of the pods of this node in one family whose packets to the outside get their address at another node.
func EgressAwaySet(f model.Family) ipsets.Set {
	return ipsets.Set{Name: "away-" + f.String(), Kind: model.Addresses, Family: f}
}

// EgressLeasedSet returns the set of the addresses in one family that a node holds by its Lease, on any node.
func EgressLeasedSet(f model.Family) ipsets.Set {
	return ipsets.Set{Name: "leased-" + f.String(), Kind: model.Addresses, Family: f}
}

// PeerPodsSet returns the set of the pod prefixes of all peers in one family.
func PeerPodsSet(f model.Family) ipsets.Set {
	return ipsets.Set{Name: "peer-pods-" + f.String(), Kind: model.Networks, Family: f}
}

// Egress renders the chains that give packets of pods to the outside the addresses of Egresses, all of which this node
// holds. They are in a table of their own, for every backend, and see packets that policy allowed:
//
//	egress-ways (filter, prerouting, after proxies)
//	  not in by gw .................................... return
//	  from a pod whose Egress is at another node: goto egress-away
//	  |   to the cluster .............................. return
//	  |   a new connection, but for SCTP .............. mark the connection (MarkAway)
//	  |   of a connection with that mark .............. mark the packet
//	  to such a pod: goto egress-back
//	      from the cluster ............................ return
//	      of a connection with the mark ............... return
//	      no answer ................................... drop
//	egress-drops (filter, before the next one)
//	  out by gw, or to the cluster .................... return
//	  of a connection with MarkAway ................... drop
//	  a new connection of a pod that an Egress selects,
//	    and this node has not its address ............. drop
//	egress-sources (nat, before Sources masquerades)
//	  out by gw, or to the cluster .................... return
//	  from a pod of an Egress ......................... its address
//	  from another pod of a peer ...................... drop
//	egress-guard (filter, after NAT)
//	  from a leased address that is not on this node .. drop
//	  out by gw, or to the cluster .................... return
//	  from a pod of an Egress or of a peer, of no known connection: NAT has not seen it .. drop
//
// A connection keeps the source that it began with. The guard needs no agent: the kernel removes a leased address when the Lease of
// this node has not been renewed (ovsfwd/hostnet), and another node may have it.
//
// A policy rule leads packets with MarkAway back to the switch (ovsfwd/hostnet), which sends them to the other node
// (ovsfwd/pipeline, table 10). Policy has passed them on the way, as packets to the outside. The other node is a router between
// this one and the outside: answers come from the tunnel with a source outside the cluster. Only the connection shows
// that they are answers.
func (n NodeChains) Egress(addresses []netip.Addr) []tables.Chain {
	drops := n.towardsOutside(ChainEgressDrops, tables.HookFilter, priorityEgressDrops)
	drops.Rules = append(drops.Rules, tables.Rule{Matches: []tables.Match{isAway()}, Action: tables.Drop{}, Comment: "another node has the address of its egress"})
	for _, f := range model.Families() {
		drops.Rules = append(drops.Rules, tables.Rule{
			Matches: []tables.Match{
				tables.MatchConnState{States: tables.StateNew},
				tables.MatchConnOriginal{},
				tables.MatchSet{Family: f, Side: tables.Source, Set: EgressDroppedSet(f).Name},
			},
			Action: tables.Drop{}, Comment: "this node does not have the address of its egress",
		})
	}
	sources := n.towardsOutside(ChainEgressSources, tables.HookNAT, priorityEgress)
	for _, a := range addresses {
		sources.Rules = append(sources.Rules, tables.Rule{
			Matches: []tables.Match{tables.MatchSet{Family: model.FamilyOf(a), Side: tables.Source, Set: EgressPodsSet(a).Name}},
			Action:  tables.SourceNAT{To: a}, Comment: "the address of its egress",
		})
	}
	for _, f := range model.Families() {
		sources.Rules = append(sources.Rules, tables.Rule{
			Matches: []tables.Match{tables.MatchSet{Family: f, Side: tables.Source, Set: PeerPodsSet(f).Name}},
			Action:  tables.Drop{}, Comment: "a pod of another node, with no egress here",
		})
	}
	return []tables.Chain{egressWays(n), egressAway(), egressBack(), drops, sources, n.egressGuard(addresses)}
}

// egressGuard drops packets with a leased address that this node does not have, or has no more. It also drops what still has
// the address of a pod that must leave with another one, or not here: NAT sees connections only (see untranslated).
func (n NodeChains) egressGuard(addresses []netip.Addr) tables.Chain {
	c := tables.Chain{
		Name: ChainEgressGuard, Origin: tables.OfEveryPod{},
		Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookPostrouting, Priority: priorityEgressGuard},
	}
	for _, f := range model.Families() {
		c.Rules = append(c.Rules, tables.Rule{
			Matches: []tables.Match{
				tables.MatchSet{Family: f, Side: tables.Source, Set: EgressLeasedSet(f).Name},
				tables.MatchLocal{Side: tables.Source, Negated: true},
			},
			Action: tables.Drop{}, Comment: "this node does not hold the address",
		})
	}
	c.Rules = append(c.Rules, tables.Rule{Matches: []tables.Match{n.gateway.out()}, Action: tables.Return{}, Comment: "to a pod or a peer"})
	c.Rules = append(c.Rules, withinCluster(tables.Destination)...)
	drop := func(s ipsets.Set, comment string) {
		c.Rules = append(c.Rules, tables.Rule{
			Matches: []tables.Match{
				tables.MatchConnState{States: untranslatedStates}, tables.MatchSet{Family: s.Family, Side: tables.Source, Set: s.Name},
			},
			Action: tables.Drop{}, Comment: comment,
		})
	}
	for _, a := range addresses {
		drop(EgressPodsSet(a), "still has the pod's address")
	}
	for _, f := range model.Families() {
		drop(EgressDroppedSet(f), "this node does not have the address of its egress")
		drop(PeerPodsSet(f), "a pod of another node, with no egress here")
	}
	return c
}

func isAway() tables.Match { return tables.MatchConnMark{Value: MarkAway, Mask: MarkAway} }

// egressWays decides about packets from the switch. It looks sets of single addresses up, which cost less than ClusterSet.
func egressWays(n NodeChains) tables.Chain {
	c := tables.Chain{
		Name: ChainEgressWays, Origin: tables.OfEveryPod{},
		Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookPrerouting, Priority: priorityEgressWays},
		Rules: []tables.Rule{{
			Matches: []tables.Match{n.gateway.notIn()},
			Action:  tables.Return{}, Comment: "neither from a pod nor the tunnel",
		}},
	}
	for _, f := range model.Families() {
		set := EgressAwaySet(f).Name
		c.Rules = append(c.Rules,
			tables.Rule{
				Matches: []tables.Match{tables.MatchSet{Family: f, Side: tables.Source, Set: set}},
				Action:  tables.Goto{Chain: ChainEgressAway}, Comment: "from a pod whose egress is at another node",
			},
			tables.Rule{
				Matches: []tables.Match{tables.MatchSet{Family: f, Side: tables.Destination, Set: set}},
				Action:  tables.Goto{Chain: ChainEgressBack}, Comment: "to a pod whose egress is at another node",
			},
		)
	}
	return c
}

// egressAway marks packets that another node gives their source address.
func egressAway() tables.Chain {
	c := tables.Chain{Name: ChainEgressAway, Origin: tables.OfEveryPod{}, Rules: withinCluster(tables.Destination)}
	c.Rules = append(c.Rules,
		tables.Rule{
			Matches: []tables.Match{
				tables.MatchProtocol{Protocol: model.SCTP, Negated: true},
				tables.MatchConnState{States: tables.StateNew},
				tables.MatchConnOriginal{},
			},
			Action: tables.SetConnMark{Value: MarkAway, Mask: MarkAway}, Comment: "leaves by another node",
		},
		tables.Rule{
			Matches: []tables.Match{tables.MatchConnOriginal{}, isAway()},
			Action:  tables.SetMark{Value: MarkAway, Mask: MarkAway}, Comment: "to the node with its address",
		},
	)
	return c
}

// egressBack drops packets with a source outside the cluster that are no answers by the tunnel.
func egressBack() tables.Chain {
	return tables.Chain{Name: ChainEgressBack, Origin: tables.OfEveryPod{}, Rules: append(withinCluster(tables.Source),
		tables.Rule{Matches: []tables.Match{isAway()}, Action: tables.Return{}, Comment: "an answer by the tunnel"},
		tables.Rule{Action: tables.Drop{}, Comment: "from outside by the tunnel, and no answer"},
	)}
}

// withinCluster returns packets from or to pods and nodes.
func withinCluster(side tables.Side) (all []tables.Rule) {
	for _, f := range model.Families() {
		all = append(all, tables.Rule{
			Matches: []tables.Match{tables.MatchSet{Family: f, Side: side, Set: ClusterSet(f).Name}},
			Action:  tables.Return{}, Comment: "within the cluster",
		})
	}
	return all
}

// towardsOutside returns a chain that returns packets to pods and nodes. Those that leave by the gateway port are
// packets to them.
func (n NodeChains) towardsOutside(name string, kind tables.HookType, priority int32) tables.Chain {
	c := tables.Chain{
		Name: name, Origin: tables.OfEveryPod{}, Hook: &tables.Hook{Type: kind, Point: tables.HookPostrouting, Priority: priority},
		Rules: []tables.Rule{{Matches: []tables.Match{n.gateway.out()}, Action: tables.Return{}, Comment: "to a pod or a peer"}},
	}
	c.Rules = append(c.Rules, withinCluster(tables.Destination)...)
	return c
}
