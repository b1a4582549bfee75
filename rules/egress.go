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

// Egress renders the chains that give packets of pods to the outside the addresses of Egresses, all of which this node
// holds. They are in a table of their own, for every backend, and see packets that policy allowed:
//
//	egress-drops (filter, before the next one)
//	  out by gw, or to the cluster .................... return
//	  a new connection of a pod that an Egress selects,
//	    and this node has not its address ............. drop
//	egress-sources (nat, before Sources masquerades)
//	  out by gw, or to the cluster .................... return
//	  from a pod of an Egress ......................... its address
//
// A connection keeps the source that it began with.
func (n NodeChains) Egress(addresses []netip.Addr) []tables.Chain {
	drops := n.towardsOutside(ChainEgressDrops, tables.HookFilter, priorityEgressDrops)
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
	return []tables.Chain{drops, sources}
}

// towardsOutside returns a chain that returns packets to pods and nodes. Those that leave by the gateway port are
// packets to them.
func (n NodeChains) towardsOutside(name string, kind tables.HookType, priority int32) tables.Chain {
	c := tables.Chain{
		Name: name, Origin: tables.OfEveryPod{}, Hook: &tables.Hook{Type: kind, Point: tables.HookPostrouting, Priority: priority},
		Rules: []tables.Rule{{Matches: []tables.Match{n.out()}, Action: tables.Return{}, Comment: "to a pod or a peer"}},
	}
	for _, f := range model.Families() {
		c.Rules = append(c.Rules, tables.Rule{
			Matches: []tables.Match{tables.MatchSet{Family: f, Side: tables.Destination, Set: ClusterSet(f).Name}},
			Action:  tables.Return{}, Comment: "within the cluster",
		})
	}
	return c
}
