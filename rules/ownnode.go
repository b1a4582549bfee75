package rules

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// OwnNode returns the policies that judge packets of a pod to its own node: those of the
// ordered tiers. NetworkPolicies never deny the own node, but a pod that one isolates is
// not judged by the baseline tier.
func OwnNode(egress model.Applied) model.Applied {
	own := model.Applied{Admin: egress.Admin}
	if !egress.Isolated() {
		own.Baseline = egress.Baseline
	}
	return own
}

// Input renders the chains for packets that are for this node itself. They judge those of
// pods under the ordered tiers. Each part has the pods under one list of policies:
//
//	input (base chain, hook input)
//	  not by gw ..................................... return
//	  of a connection that is known, no SYN ......... return
//	  neighbour discovery ........................... return
//	  goto judge-own-node
//	    source address in a set -> the chain of the list; a packet that
//	      no policy denies is accepted (iptables: returns)
//	    source address in the set of all these pods ... drop (nftables)
//
// With nftables a packet takes its rules from the generation at its start, and the members of a
// set from that of the lookup. A packet that meets the commit which moves its pod to a new list
// has no rule for that list: the last rule drops it. Its connection would go on otherwise.
//
// The node's own connections to pods are never judged. So the state of the connection
// decides here, without MarkAllowed: a connection that is known has passed these chains, or
// is the node's own, or began before there was a policy of an ordered tier.
//
// The base chain leads to no list itself: if the kernel refuses one, it can only be the
// second chain that is closed, because the base chain sees all packets to the host.
func (r *Renderer) Input(parts []Part) []tables.Chain {
	judge := tables.Chain{Name: ChainOwnNode, Rules: []tables.Rule{
		{Action: tables.SetMark{Value: 0, Mask: MarkPass | MarkJudged}, Comment: "is not judged yet"},
	}}
	for _, p := range parts {
		for _, f := range model.Families() {
			judge.Rules = append(judge.Rules, tables.Rule{
				Matches: []tables.Match{tables.MatchSet{Family: f, Side: tables.Source, Set: p.SetOf(f)}},
				Action:  p.Action, Comment: p.Comment,
			})
		}
	}
	if r.nftables {
		for _, f := range model.Families() {
			judge.Rules = append(judge.Rules, tables.Rule{
				Matches: []tables.Match{tables.MatchSet{Family: f, Side: tables.Source, Set: OwnNodeSet(f)}},
				Action:  tables.Drop{}, Comment: "its list of policies is being replaced",
			})
		}
	}
	return ofEveryPod(tables.Chain{
		Name: ChainInput, Hook: inputHook(),
		Rules: append(append(strayInput(r.node), unjudgedInput(r.node)...), tables.Rule{Action: tables.Goto{Chain: ChainOwnNode}, Comment: "from a pod to its own node"}),
	}, judge)
}

func inputHook() *tables.Hook {
	return &tables.Hook{Type: tables.HookFilter, Point: tables.HookInput, Priority: priorityForward}
}

// unjudgedInput returns the rules for packets to the node that policy does not judge.
func unjudgedInput(n NodeChains) []tables.Rule {
	all := []tables.Rule{{
		Matches: []tables.Match{n.gateway.notIn()},
		Action:  tables.Return{}, Comment: "not from a pod",
	}}
	all = append(all, goOn(tables.Return{}, "connections go on", known())...)
	return append(all, neighbourDiscovery())
}

// strayInput drops packets with the address of a pod of this node that are not known to come from it, while the table of PodSources is missing.
func strayInput(n NodeChains) []tables.Rule {
	if !n.gateway.policyOnly {
		return nil
	}
	all := append(goOn(tables.Return{}, "connections go on", known()), neighbourDiscovery())
	for _, f := range model.Families() {
		all = append(all, tables.Rule{
			Matches: []tables.Match{n.gateway.notIn(), tables.MatchSet{Family: f, Side: tables.Source, Set: OwnPodsSet(f).Name}},
			Action:  tables.Drop{}, Comment: "pod address without its interface",
		})
	}
	return all
}

// neighbourDiscovery returns from a base chain with messages of neighbour discovery, which have no connection.
func neighbourDiscovery() tables.Rule {
	return tables.Rule{
		Matches: []tables.Match{tables.MatchProtocol{Protocol: model.ICMPv6}, tables.MatchConnState{States: tables.StateUntracked}},
		Action:  tables.Return{}, Comment: "neighbour discovery",
	}
}

// forwardedDiscovery drops these messages where they are forwarded: no router forwards neighbour discovery or multicast listener reports, which are
// for one link (RFC 4861, section 7.1.1; RFC 3810, section 5). They have no connection, so no policy could judge the answer.
func forwardedDiscovery() tables.Rule {
	r := neighbourDiscovery()
	r.Action, r.Comment = tables.Drop{}, "neighbour discovery is not forwarded"
	return r
}

// OwnNodePart returns the part of Input for the pods under a list of policies (see OwnNode).
func (r *Renderer) OwnNodePart(own model.Applied) Part {
	chain := r.ownNodeChain(own)
	return Part{Set: r.partSet(chain), Action: tables.Goto{Chain: chain}, Comment: "policies of the source pod, to its own node"}
}

// OwnNodeList renders the chain that asks a list of policies about packets to the own node.
// The chains of the policies are those that forwarded packets pass, too. A list with a
// policy that has no chain denies all packets (see Claims).
//
// Under iptables a packet has MarkRejected while it is in the chain, so that a policy which
// rejects it drops it (see Rejected). It leaves the chain without: a socket may give the
// mark to its answers (tcp_fwmark_accept).
func (r *Renderer) OwnNodeList(own model.Applied, hasRules func(model.PolicyID) bool) tables.Chain {
	c := tables.Chain{
		Name:   r.ownNodeChain(own),
		Origin: tables.OfList{Identity: AppliedIdentity(model.Egress, own), OwnNode: true},
	}
	for id := range own.All() {
		if _, refused := r.policies.Refused(PolicySide{id, model.Egress}); refused && hasRules(id) {
			c.Rules = []tables.Rule{{Action: Deny(model.Egress), Comment: id.String() + " has no chain: another policy has its name"}}
			return c
		}
	}
	if !r.nftables {
		c.Rules = []tables.Rule{{Action: tables.SetMark{Value: MarkRejected, Mask: MarkRejected}, Comment: "no answer if rejected"}}
	}
	c.Rules = append(c.Rules, r.admin(model.Egress, own.Admin, hasRules)...)
	for _, id := range own.Baseline {
		if hasRules(id) {
			c.Rules = append(c.Rules, tables.Rule{
				Matches: []tables.Match{notJudged()},
				Action:  tables.Jump{Chain: r.PolicyChain(id, model.Egress)}, Comment: id.String(),
			})
		}
	}
	if !r.nftables {
		c.Rules = append(c.Rules, tables.Rule{Action: tables.SetMark{Value: 0, Mask: MarkRejected}, Comment: "is not rejected"})
	} else {
		c.Rules = append(c.Rules, tables.Rule{Action: tables.Accept{}, Comment: "no policy denies it"})
	}
	return c
}

// OwnNodeClosed is OwnNodeList if nobody can say what the list decides: it drops all packets.
// The chain that counts denied packets may be gone with the policies.
func (r *Renderer) OwnNodeClosed(own model.Applied, why string) tables.Chain {
	return tables.Chain{
		Name: r.ownNodeChain(own), Origin: tables.OfEveryPod{},
		Rules: []tables.Rule{{Action: tables.Drop{}, Comment: why}},
	}
}
