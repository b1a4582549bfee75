package rules

import (
	"net/netip"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// Priorities of the base chains.
const (
	priorityRaw = -300
	// One before "mangle", where others may set the whole mark of a packet.
	priorityAllowed = -151
	// "mangle": in iptables' filter table, an accept of another program's rule before
	// ours is final. kube-proxy accepts all packets through a NodePort at the top of
	// FORWARD.
	priorityForward = -150
	priorityFilter  = 0
	// One behind "filter", where others say of a Service that it has no endpoint.
	priorityRejected = 1
	// One before "srcnat", where others masquerade, and one behind it.
	prioritySources   = 99
	priorityRewritten = 101
	// After all NAT of others, too.
	priorityUntranslated = 110
	// "mangle": iptables has no table behind NAT.
	priorityUntranslatedIPTables = -150
)

// Static renders the chains that every packet of a pod passes (see the
// package comment), for this node. They dispatch both families, also without a prefix of
// the family: a pod may still have an address of it. The services
// are the prefixes of the addresses of Services.
func (n NodeChains) Static(node *model.Node, services ...netip.Prefix) []tables.Chain {
	if n.gateway.policyOnly {
		return policyOnlyStatic(n)
	}
	return ofEveryPod(prerouting(), n.forward(), egress(node), n.outside(), allowedOut(), toPods(node), n.allowed(node, services))
}

func ofEveryPod(chains ...tables.Chain) []tables.Chain {
	for i := range chains {
		chains[i].Origin = tables.OfEveryPod{}
	}
	return chains
}

// forward judges egress, then ingress, and drops packets that return from ingress. Egress
// returns to forward, so only one rule leads to the chains of ingress. Otherwise each rule
// that allows egress would, and a kernel that validates by following every path would walk
// them once per rule (doc.go).
func (n NodeChains) forward() tables.Chain {
	ours := func(negated bool) tables.Match {
		return tables.MatchInterface{Side: tables.Source, Name: n.gateway.name, Negated: negated}
	}
	var rules []tables.Rule
	if n.routed {
		rules = n.notBelieved()
	}
	rules = append(rules, allowedBefore()...)
	if n.iptables {
		rules = append(rules, n.notRejected()...)
	}
	return tables.Chain{
		Name: ChainForward,
		Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookForward, Priority: priorityForward},
		Rules: append(rules,
			neither(n),
			tables.Rule{
				Matches: []tables.Match{ours(false)},
				Action:  tables.Jump{Chain: ChainEgress}, Comment: "from a pod or the tunnel",
			},
			tables.Rule{
				Matches: []tables.Match{ours(true)},
				Action:  tables.Jump{Chain: ChainOutside}, Comment: "from outside to a pod",
			},
			tables.Rule{
				Matches: []tables.Match{isJudged()},
				Action:  tables.Jump{Chain: ChainToPods}, Comment: "may leave where it comes from",
			},
			// Packets get here if another program flushed a chain above, and in nftables also during a commit: a packet
			// takes its rules from the generation at its start, and a map's elements from that of the lookup. An
			// element may so lead it to a new chain, of which the packet's generation has no rule. After a Goto, the
			// packet would leave that chain to the policy of this one, which accepts.
			tables.Rule{Action: tables.Drop{}, Comment: "was not judged"},
		),
	}
}

// notBelieved drops packets with the address of a pod that come neither by the gateway port nor with the mark of
// Senders. Senders has dropped them, unless its table is missing. They are dropped before connections that were
// allowed go on, and also on their way to another node: that node would believe this node's MAC address.
func (n NodeChains) notBelieved() []tables.Rule {
	all := forgedPods()
	for i := range all {
		all[i].Matches = append([]tables.Match{
			tables.MatchMark{Value: MarkBelieved, Mask: MarkBelieved, Negated: true},
			tables.MatchInterface{Side: tables.Source, Name: n.gateway.name, Negated: true},
		}, all[i].Matches...)
	}
	return all
}

// notRejected clears MarkRejected, which another program may have set before: it would have
// an allowed packet answered.
func (n NodeChains) notRejected() []tables.Rule {
	var all []tables.Rule
	for _, m := range []tables.Match{n.gateway.in(), n.gateway.out()} {
		all = append(all, tables.Rule{
			Matches: []tables.Match{m}, Action: tables.SetMark{Value: 0, Mask: MarkRejected}, Comment: "is not rejected yet",
		})
	}
	return all
}

// allowedBefore accepts packets of connections that policy allowed before. The state
// established is not enough: see MarkAllowed.
func allowedBefore() []tables.Rule {
	return goOn(tables.Accept{}, "connections that were allowed go on", known(), markedAllowed())
}

// known matches packets of connections that conntrack knows.
func known() tables.Match {
	return tables.MatchConnState{States: tables.StateEstablished | tables.StateRelated}
}

// goOn applies the action to packets of the connections, except for TCP segments that
// ask for a connection. These are always judged, because another connection begins.
// conntrack takes it for the old one, with the old mark, if a reset of the server ended
// that one, or if conntrack did not see its end.
func goOn(action tables.Action, comment string, connections ...tables.Match) []tables.Rule {
	tcp := func(negated bool) tables.Match { return tables.MatchProtocol{Protocol: model.TCP, Negated: negated} }
	return []tables.Rule{
		{
			Matches: append([]tables.Match{tcp(false), tables.MatchSYN{Negated: true}}, connections...),
			Action:  action, Comment: "TCP " + comment,
		},
		{
			Matches: append([]tables.Match{tcp(true)}, connections...),
			Action:  action, Comment: "other " + comment + ", and errors",
		},
	}
}

// allowed marks connections if a judged packet comes this far: an accept ends only
// the chain at its own hook, so later hooks may still drop the packet.
//
// Only a packet of the side that opened the connection proves that policy allows the
// connection. While the connection is not marked, replies and ICMP errors about it are
// judged as packets of their own. Their verdict says nothing about the other direction.
//
// A marked connection whose other side has answered also gets the marks that say whether the kernel translates it.
// Which first packets it translates is not decided yet in this hook.
//
// Before that, a packet which begins a connection of a pod with another node loses
// the mark by which kube-proxy would masquerade it (see MarkMasquerade).
//
// It drops packets to an address of a Service that no proxy has rewritten. They would
// leave the node with the node's own source address. The drop comes after the rules of
// proxies that reject such packets.
func (n NodeChains) allowed(node *model.Node, services []netip.Prefix) tables.Chain {
	c := tables.Chain{
		Name: ChainAllowed,
		Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookPostrouting, Priority: priorityAllowed},
	}
	switch {
	case n.iptables:
		// First: a packet that goes on is not rejected, whatever mark another program gave it.
		const comment = "connections that were allowed go on"
		if !n.gateway.policyOnly {
			c.Rules = append(goOn(tables.Return{}, comment+", settled", known(), markedSettled()), settle()...)
		}
		c.Rules = append(c.Rules, goOn(tables.Return{}, comment, known(), markedAllowed())...)
		c.Rules = append(c.Rules, n.notAnswered(node)...)
	case !n.gateway.policyOnly:
		c.Rules = append(c.Rules, tables.Rule{Matches: []tables.Match{markedSettled()}, Action: tables.Return{}, Comment: "settled"})
		c.Rules = append(c.Rules, settle()...)
	}
	c.Rules = append(c.Rules, tables.Rule{Matches: []tables.Match{markedAllowed()}, Action: tables.Return{}, Comment: "marked before"})
	for _, p := range node.PodCIDRs {
		c.Rules = append(c.Rules, n.unclaimed(p, services)...)
	}
	for _, p := range node.PodCIDRs {
		if n.routed {
			c.Rules = append(c.Rules, tables.Rule{
				Matches: append(n.gateway.toPeers(p), tables.MatchMark{Value: MarkMasquerade, Mask: MarkMasquerade}),
				Action:  tables.SetMark{Value: 0, Mask: MarkMasquerade}, Comment: "pods within the cluster, without a tunnel",
			})
		}
		c.Rules = append(c.Rules, tables.Rule{
			Matches: append(n.gateway.within(p), tables.MatchMark{Value: MarkMasquerade, Mask: MarkMasquerade}),
			Action:  tables.SetMark{Value: 0, Mask: MarkMasquerade}, Comment: "pods within the cluster",
		})
	}
	c.Rules = append(c.Rules, tables.Rule{
		Matches: []tables.Match{
			isJudged(),
			tables.MatchConnState{States: tables.StateNew | tables.StateEstablished},
			tables.MatchConnOriginal{},
		},
		Action: tables.SetConnMark{Value: MarkAllowed, Mask: MarkAllowed}, Comment: "policy let it through",
	})
	return c
}

// settle marks allowed connections whose other side has answered: as translated or not. Each connection is marked once,
// because other packets of it may pass at the same time.
func settle() []tables.Rule {
	const both = MarkSettled | MarkUntranslated
	answered := []tables.Match{
		tables.MatchConnMark{Value: MarkAllowed, Mask: MarkAllowed | MarkSettled}, tables.MatchConnState{States: tables.StateEstablished},
	}
	return []tables.Rule{
		{
			Matches: append(answered[:len(answered):len(answered)], tables.MatchConnTranslated{}),
			Action:  tables.SetConnMark{Value: MarkSettled, Mask: both}, Comment: "answered, and translated",
		},
		{Matches: answered, Action: tables.SetConnMark{Value: both, Mask: both}, Comment: "answered"},
	}
}

// notAnswered drops rejected packets that came past the chain that answers: another
// program's rule before it accepted them.
func (n NodeChains) notAnswered(node *model.Node) []tables.Rule {
	ends := []tables.Match{n.gateway.out()}
	if n.gateway.policyOnly {
		ends = []tables.Match{n.gateway.in(), toOwnPods(model.IPv4), toOwnPods(model.IPv6)}
	}
	for _, p := range node.PodCIDRs {
		ends = append(ends, tables.MatchPrefix{Side: tables.Source, Prefix: p})
	}
	var all []tables.Rule
	for _, end := range ends {
		all = append(all, tables.Rule{Matches: []tables.Match{end, isRejected()}, Action: tables.Drop{}, Comment: "rejected, and past the chain that answers"})
	}
	return all
}

// unclaimed drops packets of pods that leave the node for an address of a Service.
func (n NodeChains) unclaimed(pods netip.Prefix, services []netip.Prefix) []tables.Rule {
	var all []tables.Rule
	for _, s := range services {
		if model.FamilyOf(s.Addr()) != model.FamilyOf(pods.Addr()) {
			continue
		}
		all = append(all, tables.Rule{
			Matches: []tables.Match{
				n.gateway.notOut(),
				tables.MatchPrefix{Side: tables.Source, Prefix: pods},
				tables.MatchPrefix{Side: tables.Destination, Prefix: s},
			},
			Action: tables.Goto{Chain: ChainNoService}, Comment: "address of a service",
		})
	}
	return all
}

// Passed renders the chain that accepts packets that policy allowed, before rules of
// other programs can drop them. It is for drivers that share tables with other programs.
// Packets that policy denies do not come here. Packets that policy rejects do: this chain
// leads to their answer. Its table is filter, the only one in which iptables rejects.
// A packet without proof that policy allowed it is dropped: a rejected packet can lose its
// mark to another program between mangle and filter. That its connection was allowed proves
// nothing for a TCP segment that asks for a connection (see goOn).
func (n NodeChains) Passed() tables.Chain {
	c := tables.Chain{
		Name: ChainPassed,
		Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookForward, Priority: priorityFilter},
	}
	if n.gateway.policyOnly {
		c.Rules = policyOnlyPassed(n)
		return c
	}
	c.Rules = append([]tables.Rule{neither(n)}, goOn(tables.Accept{}, "connections that were allowed go on", known(), markedAllowed())...)
	c.Rules = append(c.Rules, passedByMark()...)
	// Another program flushed forward, or overwrote the mark, that of a rejected packet too.
	c.Rules = append(c.Rules, notJudgedEnd(n)...)
	return c
}

// passedByMark are the rules of Passed for packets that policy has judged.
func passedByMark() []tables.Rule {
	return []tables.Rule{
		{Matches: []tables.Match{isRejected()}, Action: tables.Goto{Chain: ChainAnswer}, Comment: "policy rejects it"},
		{Matches: []tables.Match{isJudged()}, Action: tables.Accept{}, Comment: "policy let it through"},
		// Only while another program has flushed forward: the peer of the connection has not answered yet.
		{
			Matches: []tables.Match{tables.MatchProtocol{Protocol: model.TCP, Negated: true}, markedAllowed()},
			Action:  tables.Accept{}, Comment: "other connections that were allowed go on, unanswered",
		},
	}
}

// notJudgedEnd drops the packets of pods that no rule before has judged, at the end of a chain of forwarded packets.
func notJudgedEnd(n NodeChains) []tables.Rule {
	if n.gateway.policyOnly {
		return toOrFromPods(n.gateway.in(), tables.Drop{}, "was not judged")
	}
	return []tables.Rule{{Action: tables.Drop{}, Comment: "was not judged"}}
}

// neither returns from a chain of forwarded packets with those that are not of pods.
func neither(n NodeChains) tables.Rule {
	return tables.Rule{
		Matches: []tables.Match{
			tables.MatchInterface{Side: tables.Source, Name: n.gateway.name, Negated: true},
			n.gateway.notOut(),
		},
		Action: tables.Return{}, Comment: "neither from nor to a pod",
	}
}

// judged marks a packet as judged by egress policy.
func judged(comment string) tables.Rule {
	return tables.Rule{Action: tables.SetMark{Value: MarkJudged, Mask: MarkJudged}, Comment: comment}
}

func isJudged() tables.Match { return tables.MatchMark{Value: MarkJudged, Mask: MarkJudged} }

func notJudged() tables.Match {
	return tables.MatchMark{Value: MarkJudged, Mask: MarkJudged, Negated: true}
}

// allowedOut renders the chain for packets that egress policy allows. It marks the
// packet, which then returns to the chain of its pod's policies. The rules there match
// only packets without the mark, so the packet returns to forward.
func allowedOut() tables.Chain {
	return tables.Chain{Name: ChainAllowedOut, Rules: []tables.Rule{judged("allowed egress")}}
}

func markedAllowed() tables.Match {
	return tables.MatchConnMark{Value: MarkAllowed, Mask: MarkAllowed}
}

func markedSettled() tables.Match {
	const both = MarkAllowed | MarkSettled
	return tables.MatchConnMark{Value: both, Mask: both}
}

// prerouting drops packets that the host's stack receives directly from a pod's
// interface. A userspace datapath reads frames from packet sockets, and the host's
// stack gets a copy. A pod that sends to the MAC address of its veth's host side would
// bypass spoofguard and policy. Packets from the switch come by the gateway port. The
// chain is before conntrack, so that conntrack makes no entry.
func prerouting() tables.Chain {
	return tables.Chain{
		Name: ChainPrerouting,
		Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookPrerouting, Priority: priorityRaw},
		Rules: []tables.Rule{{
			Matches: []tables.Match{tables.MatchInterface{Side: tables.Source, Name: model.PodInterfacePrefix + "*"}},
			Action:  tables.Drop{}, Comment: "pods reach the host by the gateway port only",
		}},
	}
}

// egress judges packets of this node's pods. It allows packets of peer nodes, whose
// agents have judged them. Allowed packets return with MarkJudged.
func egress(node *model.Node) tables.Chain {
	c := egressOfPods()
	for _, p := range node.PodCIDRs {
		c.Rules = append(c.Rules, tables.Rule{
			Matches: []tables.Match{tables.MatchPrefix{Side: tables.Source, Prefix: p}},
			Action:  tables.Drop{}, Comment: "no endpoint has this address",
		})
	}
	c.Rules = append(c.Rules, judged("from a peer node"))
	return c
}

// egressOfPods renders the chain that judges packets of pods, without an end for packets of others.
func egressOfPods() tables.Chain {
	c := tables.Chain{Name: ChainEgress, Rules: []tables.Rule{
		dropInvalid(), forwardedDiscovery(),
		// During a change of the backend, the other backend may have set the mark.
		{Action: tables.SetMark{Value: 0, Mask: MarkJudged}, Comment: "is not judged yet"},
		{Action: tables.Jump{Chain: ChainCommonOut}, Comment: "policies of many pods"},
		{Matches: []tables.Match{isJudged()}, Action: tables.Return{}, Comment: "may leave"},
	}}
	for _, f := range model.Families() {
		c.Rules = append(c.Rules, dispatch(model.Egress, f))
	}
	return c
}

func (n NodeChains) outside() tables.Chain {
	c := tables.Chain{Name: ChainOutside, Rules: []tables.Rule{dropInvalid(), forwardedDiscovery()}}
	if !n.routed && !n.gateway.policyOnly { // else forward drops them, see notBelieved
		c.Rules = append(c.Rules, forgedPods()...)
	}
	c.Rules = append(c.Rules, judged("from outside"))
	return c
}

// forgedPods drops packets with the address of a pod from where no pod is.
func forgedPods() []tables.Rule {
	var all []tables.Rule
	for _, f := range model.Families() {
		all = append(all, tables.Rule{
			Matches: []tables.Match{tables.MatchSet{Family: f, Side: tables.Source, Set: PodNetworksSet(f)}},
			Action:  tables.Drop{}, Comment: "pod address from outside is forged",
		})
	}
	return all
}

func toPods(node *model.Node) tables.Chain {
	linkLocal := netip.MustParsePrefix("fe80::/10")
	c := tables.Chain{Name: ChainToPods, Rules: []tables.Rule{
		{Action: tables.Jump{Chain: ChainCommonIn}, Comment: "policies of many pods"},
	}}
	for _, f := range model.Families() {
		c.Rules = append(c.Rules, dispatch(model.Ingress, f))
	}
	for _, p := range node.PodCIDRs {
		c.Rules = append(c.Rules, tables.Rule{
			Matches: []tables.Match{tables.MatchPrefix{Side: tables.Destination, Prefix: p}},
			Action:  tables.Drop{}, Comment: "no endpoint has this address",
		})
	}
	// Forwarding a link-local address is wrong (RFC 4291, section 2.5.6), and no
	// policy knows those of pods.
	c.Rules = append(c.Rules,
		tables.Rule{
			Matches: []tables.Match{tables.MatchPrefix{Side: tables.Destination, Prefix: linkLocal}},
			Action:  tables.Drop{}, Comment: "link-local addresses are not forwarded",
		},
		tables.Rule{Action: tables.Accept{}, Comment: "not to a pod of this node"})
	return c
}

func dropInvalid() tables.Rule {
	return tables.Rule{
		Matches: []tables.Match{tables.MatchConnState{States: tables.StateInvalid}},
		Action:  tables.Drop{}, Comment: "invalid connection state",
	}
}
