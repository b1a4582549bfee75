package rules

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// The chains of this file are for the mode networkPolicyOnly: another CNI plugin owns the interfaces of the pods, and
// there is no bridge of ours. PodSources gives the packets of this node's pods a mark. In all chains of the backends the
// mark replaces the gateway port as the sign of a pod's packet.

// OwnPodsSet returns the set of the addresses of this node's pods in one family.
func OwnPodsSet(f model.Family) ipsets.Set {
	return ipsets.Set{Name: "own-pods-" + f.String(), Kind: model.Addresses, Family: f}
}

// priorityUnjudged is one behind priorityForward, where policy judges.
const priorityUnjudged = priorityForward + 1

// priorityUnmarked is one before priorityForward.
const priorityUnmarked = priorityForward - 1

// PodInterfaceChainName returns the name of the chain for packets that come in by an interface of pods.
func PodInterfaceChainName(iface string) string { return "from-" + interfaceLabel(iface) }

// PodSources renders the chains that know the packets of this node's pods. They are in a table of their own, for every
// netfilter backend. The root has the rules of an InterfaceTree with PodInterfaceChain of each interface.
//
//	pod-sources (before conntrack, and before it puts fragments together)
//	  all ...................................... clear the mark
//	  in by an interface of pods -> from-<interface>:
//	    MAC address and source address are those of a pod there ... mark as believed
//	    neighbour discovery from a link-local address ............. return
//	    else ...................................................... drop
//	  source address of a pod of this node .......................... drop: forged
//	unmarked (forward, one before policy)
//	  neighbour discovery that was routed ............................. drop
//	  marked as believed, or to a pod of this node .................... clear the marks of judged and rejected packets
//	unjudged (forward, one behind policy)
//	  neighbour discovery, between two pods at a bridge ............... return
//	  of a connection marked as allowed, no SYN, or marked as judged or rejected .. return
//	  marked as believed, or to a pod of this node .................... drop
//
// The second chain drops what policy has not judged: while the table of a backend is built, and after another program
// flushed it. So that table needs no guard (see Guard).
func (n NodeChains) PodSources(root []tables.Rule) []tables.Chain {
	sources := tables.Chain{
		Name:  ChainPodSources,
		Hook:  &tables.Hook{Type: tables.HookFilter, Point: tables.HookPrerouting, Priority: prioritySenders},
		Rules: append([]tables.Rule{{Action: tables.SetMark{Value: 0, Mask: MarkBelieved}, Comment: "is not believed yet"}}, root...),
	}
	sources.Rules = append(sources.Rules, tables.Rule{Matches: []tables.Match{n.gateway.in()}, Action: tables.Return{}, Comment: "from a pod"})
	for _, f := range model.Families() {
		sources.Rules = append(sources.Rules, tables.Rule{
			Matches: []tables.Match{tables.MatchSet{Family: f, Side: tables.Source, Set: OwnPodsSet(f).Name}},
			Action:  tables.Drop{}, Comment: "pod address without its interface",
		})
	}
	unmarked := tables.Chain{
		Name:  ChainUnmarked,
		Hook:  &tables.Hook{Type: tables.HookFilter, Point: tables.HookForward, Priority: priorityUnmarked},
		Rules: append(routedDiscovery(n.gateway.in()), toOrFromPods(n.gateway.in(), tables.SetMark{Value: 0, Mask: MarkJudged | MarkRejected}, "is not judged yet")...),
	}
	unjudged := tables.Chain{
		Name:  ChainUnjudged,
		Hook:  &tables.Hook{Type: tables.HookFilter, Point: tables.HookForward, Priority: priorityUnjudged},
		Rules: append(betweenNeighbours(), goOn(tables.Return{}, "connections that were allowed go on", known(), markedAllowed())...),
	}
	unjudged.Rules = append(unjudged.Rules,
		tables.Rule{Matches: []tables.Match{isJudged()}, Action: tables.Return{}, Comment: "policy let it through"},
		tables.Rule{Matches: []tables.Match{isRejected()}, Action: tables.Return{}, Comment: "iptables rejects it in its table filter"},
	)
	unjudged.Rules = append(unjudged.Rules, toOrFromPods(n.gateway.in(), tables.Drop{}, "policy has not judged it")...)
	return ofEveryPod(sources, neighbours(), unmarked, unjudged)
}

// priorityFrames is before br_netfilter (-1), which hands packets to the chains of inet.
const priorityFrames = -300

// Frames renders the chain of the family bridge for the bridge ports of pods. br_netfilter hands IPv4 and IPv6 with
// at most one VLAN tag to the chains of inet. The receiver may take other frames for IP as well: hosts strip any number of tags of
// VLAN 0.
//
//	frames (forward)
//	  IPv4, IPv6, ARP behind at most one tag .......... return
//	  in or out by a pod's port ....................... drop
func Frames(ports []string) tables.Chain {
	c := tables.Chain{
		Name: ChainFrames, Origin: tables.OfEveryPod{},
		Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookForward, Priority: priorityFrames},
	}
	for _, t := range []struct {
		number uint16
		name   string
	}{{unix.ETH_P_IP, "IPv4"}, {unix.ETH_P_IPV6, "IPv6"}, {unix.ETH_P_ARP, "ARP"}} {
		c.Rules = append(c.Rules, tables.Rule{Matches: []tables.Match{tables.MatchEtherType{Type: t.number}}, Action: tables.Return{}, Comment: t.name})
	}
	for _, p := range ports {
		for _, side := range []tables.Side{tables.Source, tables.Destination} {
			c.Rules = append(c.Rules, tables.Rule{
				Matches: []tables.Match{tables.MatchInterface{Side: side, Name: p}}, Action: tables.Drop{}, Comment: "netfilter would not judge it",
			})
		}
	}
	return c
}

// routedDiscovery drops neighbour discovery from and to pods that has been routed, not bridged: a router has lessened the hop limit, and hosts
// take no other than 255 (RFC 4861, section 7.1.1). Reports of multicast listeners have 1, and go to destinations that are not routed.
func routedDiscovery(from tables.Match) []tables.Rule {
	var all []tables.Rule
	for _, end := range []tables.Match{from, toOwnPods(model.IPv6)} {
		r := neighbourDiscovery()
		r.Matches = append(r.Matches, tables.MatchHopLimit{Hops: 255, Negated: true},
			tables.MatchPrefix{Side: tables.Destination, Prefix: netip.MustParsePrefix("fe80::/10"), Negated: true},
			tables.MatchPrefix{Side: tables.Destination, Prefix: netip.MustParsePrefix("ff02::/16"), Negated: true}, end)
		r.Action, r.Comment = tables.Drop{}, "neighbour discovery is not routed"
		all = append(all, r)
	}
	return all
}

// betweenNeighbours returns from a chain of forwarded packets with neighbour discovery between two pods at a bridge. To
// other destinations, conntrack leaves such messages untracked too, but nobody needs them.
func betweenNeighbours() []tables.Rule {
	var all []tables.Rule
	for _, to := range []tables.Match{
		toOwnPods(model.IPv6),
		tables.MatchPrefix{Side: tables.Destination, Prefix: netip.MustParsePrefix("fe80::/10")},
		tables.MatchPrefix{Side: tables.Destination, Prefix: netip.MustParsePrefix("ff02::/16")},
	} {
		r := neighbourDiscovery()
		r.Matches = append(r.Matches, to)
		all = append(all, r)
	}
	return all
}

// PodInterfaceChain renders the chain for packets that come in by an interface of pods: the host side of a pod's own
// pair, or a bridge of many pods. Its sets (SendersSet) have the MAC addresses and addresses of these pods.
func PodInterfaceChain(iface string) tables.Chain {
	c := tables.Chain{Name: PodInterfaceChainName(iface), Origin: tables.OfEveryPod{}}
	for _, f := range model.Families() {
		c.Rules = append(c.Rules, tables.Rule{
			Matches: []tables.Match{tables.MatchSender{Family: f, Set: SendersSet(iface, f).Name}},
			Action:  tables.SetMarkAndReturn{Value: MarkBelieved, Mask: MarkBelieved}, Comment: "from the pod that owns the address",
		})
	}
	for _, p := range []string{"fe80::/10", "::/128"} {
		c.Rules = append(c.Rules, tables.Rule{
			Matches: []tables.Match{tables.MatchPrefix{Side: tables.Source, Prefix: netip.MustParsePrefix(p)}},
			Action:  tables.Goto{Chain: ChainNeighbours}, Comment: "neighbour discovery",
		})
	}
	c.Rules = append(c.Rules, tables.Rule{Action: tables.Drop{}, Comment: "no pod there has this address"})
	return c
}

// PodInterfaceVerdict is the verdict of an InterfaceTree for packets that come in by an interface of pods.
func PodInterfaceVerdict(iface string) tables.Action {
	return tables.Goto{Chain: PodInterfaceChainName(iface)}
}

// neighbours passes what a pod sends from its link-local address, or without one, to find its neighbours and routers:
// messages of RFC 4861, and reports of RFC 2710 and RFC 3810 by which bridges with multicast snooping know the listeners.
func neighbours() tables.Chain {
	c := tables.Chain{Name: ChainNeighbours}
	for _, t := range []uint8{131, 132, 133, 135, 136, 143} {
		c.Rules = append(c.Rules, tables.Rule{
			Matches: []tables.Match{tables.MatchProtocol{Protocol: model.ICMPv6}, tables.MatchICMP{Type: t, AnyCode: true}},
			Action:  tables.Return{}, Comment: "neighbour discovery",
		})
	}
	c.Rules = append(c.Rules, tables.Rule{Action: tables.Drop{}, Comment: "no policy knows link-local addresses"})
	return c
}

// policyOnlyStatic renders Static. Packets between addresses that belong to no pod of this node pass as if these chains
// were not there, and other programs masquerade pods as they do without felixlike.
func policyOnlyStatic(n NodeChains) []tables.Chain {
	out := egressOfPods()
	out.Rules = append(out.Rules, tables.Rule{Action: tables.Drop{}, Comment: "no endpoint has this address"})
	return ofEveryPod(policyOnlyForward(n), out, n.outside(), allowedOut(), toPods(&model.Node{}), n.allowed(&model.Node{}, nil))
}

func policyOnlyForward(n NodeChains) tables.Chain {
	c := tables.Chain{
		Name: ChainForward,
		Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookForward, Priority: priorityForward},
	}
	for _, f := range model.Families() {
		c.Rules = append(c.Rules, tables.Rule{
			Matches: []tables.Match{n.gateway.notIn(), tables.MatchSet{Family: f, Side: tables.Source, Set: OwnPodsSet(f).Name}},
			Action:  tables.Drop{}, Comment: "pod address without its interface",
		})
	}
	c.Rules = append(append(c.Rules, betweenNeighbours()...), allowedBefore()...)
	if n.iptables {
		c.Rules = append(c.Rules, toOrFromPods(n.gateway.in(), tables.SetMark{Value: 0, Mask: MarkRejected}, "is not rejected yet")...)
	}
	c.Rules = append(c.Rules, tables.Rule{Matches: []tables.Match{n.gateway.in()}, Action: tables.Jump{Chain: ChainEgress}, Comment: "from a pod"})
	for _, f := range model.Families() {
		c.Rules = append(c.Rules, tables.Rule{
			Matches: []tables.Match{n.gateway.notIn(), toOwnPods(f)},
			Action:  tables.Jump{Chain: ChainOutside}, Comment: "from outside to a pod",
		})
	}
	c.Rules = append(c.Rules, tables.Rule{
		Matches: []tables.Match{isJudged()},
		Action:  tables.Jump{Chain: ChainToPods}, Comment: "may leave where it comes from",
	})
	c.Rules = append(c.Rules, notJudgedEnd(n)...)
	return c
}

func toOwnPods(f model.Family) tables.Match {
	return tables.MatchSet{Family: f, Side: tables.Destination, Set: OwnPodsSet(f).Name}
}

// policyOnlyPassed is Passed where no match tells packets of others first.
func policyOnlyPassed(n NodeChains) []tables.Rule {
	all := append(betweenNeighbours(), goOn(tables.Accept{}, "connections that were allowed go on", known(), markedAllowed())...)
	for _, r := range passedByMark() {
		for _, end := range []tables.Match{n.gateway.in(), toOwnPods(model.IPv4), toOwnPods(model.IPv6)} {
			all = append(all, tables.Rule{Matches: append([]tables.Match{end}, r.Matches...), Action: r.Action, Comment: r.Comment})
		}
	}
	return append(all, notJudgedEnd(n)...)
}

// toOrFromPods applies the action to packets from pods of this node, and to packets to them.
func toOrFromPods(from tables.Match, a tables.Action, comment string) []tables.Rule {
	all := []tables.Rule{{Matches: []tables.Match{from}, Action: a, Comment: comment}}
	for _, f := range model.Families() {
		all = append(all, tables.Rule{Matches: []tables.Match{toOwnPods(f)}, Action: a, Comment: comment})
	}
	return all
}
