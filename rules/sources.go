package rules

import (
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// Sources renders the chains that decide about the source address of packets of this
// node's pods. Within the cluster they keep it, also if other programs would masquerade
// it, because policy at the other end needs the pod's address. Packets that a Service
// leads back to this node were judged before. On the way out of the cluster, with
// masquerade, the source becomes the node's own, and a second chain drops what NAT has not changed.
func (n NodeChains) Sources(node *model.Node, masquerade bool) []tables.Chain {
	c := sourcesChain()
	for _, p := range node.PodCIDRs {
		if n.routed {
			c.Rules = append(c.Rules, n.gateway.keptToPeers(p))
		}
		c.Rules = append(c.Rules, tables.Rule{
			Matches: n.gateway.within(p),
			Action:  tables.KeepSource{Family: model.FamilyOf(p.Addr())}, Comment: "pods within the cluster",
		})
	}
	if !masquerade {
		return []tables.Chain{c}
	}
	c.Rules = append(c.Rules, n.masquerade(node, false)...)
	return []tables.Chain{c, n.untranslated(node)}
}

// untranslated drops packets of this node's pods that leave the cluster with the pod's address. NAT sees connections only, and conntrack tracks
// neither neighbour discovery nor reports of multicast listeners, also as packets to the outside. In nftables it also drops
// packets of new connections that no chain has masqueraded. Packets of known connections keep the source that these began with.
func (n NodeChains) untranslated(node *model.Node) tables.Chain {
	priority, states := int32(priorityUntranslated), untranslatedStates
	if n.iptables {
		priority, states = priorityUntranslatedIPTables, tables.StateUntracked|tables.StateInvalid // what is new is not translated yet
	}
	c := tables.Chain{
		Name: ChainUntranslated, Origin: tables.OfEveryPod{},
		Hook:  &tables.Hook{Type: tables.HookFilter, Point: tables.HookPostrouting, Priority: priority},
		Rules: []tables.Rule{{Matches: []tables.Match{n.gateway.out()}, Action: tables.Return{}, Comment: "to a pod or a peer"}},
	}
	for _, p := range node.PodCIDRs {
		f, set := model.FamilyOf(p.Addr()), PodNetworksSet
		if n.routed {
			set = PeersSet
		}
		own := []tables.Match{tables.MatchPrefix{Side: tables.Source, Prefix: p}, tables.MatchConnState{States: states}}
		c.Rules = append(c.Rules,
			tables.Rule{
				Matches: append(slices.Clone(own), tables.MatchSet{Family: f, Side: tables.Destination, Set: set(f)}),
				Action:  tables.Return{}, Comment: "within the cluster",
			},
			tables.Rule{Matches: own, Action: tables.Drop{}, Comment: "still has the pod's address"},
		)
	}
	return c
}

// untranslatedStates are those of packets that must have another source behind NAT than before.
const untranslatedStates = tables.StateNew | tables.StateInvalid | tables.StateUntracked

func sourcesChain() tables.Chain {
	return tables.Chain{
		Name: ChainSources,
		Hook: &tables.Hook{Type: tables.HookNAT, Point: tables.HookPostrouting, Priority: prioritySources},
	}
}

// masquerade replaces the source of packets from pods to the outside of the cluster.
// Packets that leave by the gateway port go to pods or peer nodes. If the switch translates IPv4, only packets to Services, and those
// of protocols without ports, come to the host in that family.
func (n NodeChains) masquerade(node *model.Node, switched bool) []tables.Rule {
	var all []tables.Rule
	for _, p := range node.PodCIDRs {
		outside := []tables.Match{
			n.gateway.notOut(),
			tables.MatchPrefix{Side: tables.Source, Prefix: p},
		}
		if f := model.FamilyOf(p.Addr()); !n.routed {
			// A node that changes to encap has the routes of the mode before until its host's network is programmed. NAT
			// would bind connections of that time to the node's address for good.
			all = append(all, tables.Rule{
				Matches: append(slices.Clone(outside), tables.MatchSet{Family: f, Side: tables.Destination, Set: PodNetworksSet(f)}),
				Action:  tables.KeepSource{Family: f}, Comment: "pods within the cluster, by a route of another traffic mode",
			})
		}
		masquerade := tables.Rule{Matches: outside, Action: tables.Masquerade{}, Comment: "pods to outside"}
		if switched && p.Addr().Is4() {
			all = append(all, tables.Rule{
				Matches: append(slices.Clone(outside), tables.MatchProtocol{Protocol: model.TCP, Negated: true}, tables.MatchProtocol{Protocol: model.UDP, Negated: true}),
				Action:  tables.Masquerade{}, Comment: "pods to outside, neither TCP nor UDP",
			})
			masquerade.Matches, masquerade.Comment = append(slices.Clone(outside), tables.MatchConnDNAT{}), "pods to outside through a service"
		}
		all = append(all, masquerade)
	}
	return all
}
