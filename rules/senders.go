package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// prioritySenders is before conntrack puts fragments together (-400 in both families): the whole packet has the MAC
// address of its first fragment only. NF_IP_PRI_RAW_BEFORE_DEFRAG of linux/netfilter_ipv4.h is for such chains.
const prioritySenders = -450

// loopback is the interface of the node's own traffic.
const loopback = "lo"

// SendersSet returns the set of the pod prefixes of routed peers in one family, each with the MAC address that
// packets from there have when they come in by the interface.
func SendersSet(iface string, f model.Family) ipsets.Set {
	return ipsets.Set{Name: "senders-" + f.String() + "-" + interfaceLabel(iface), Kind: model.Senders, Family: f}
}

// interfaceLabel returns the name of an interface, or a hash of it where nft does not take its characters in
// the name of a set.
func interfaceLabel(iface string) string {
	usual := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
	}
	if !strings.ContainsFunc(iface, func(r rune) bool { return !usual(r) }) {
		return iface
	}
	sum := sha256.Sum256([]byte(iface))
	return "." + hex.EncodeToString(sum[:8]) // no name of an interface above has a dot
}

// Senders renders the chain that decides, for nodes without a tunnel between them, which packets with a pod address
// are believed. It is in a table of its own, for every backend:
//
//	senders (before conntrack, and before it puts fragments together)
//	  in by gw, where the switch has checked, or by lo ............... return
//	  in by the WireGuard device, where the kernel has checked ...... mark as believed
//	  in by an interface to peers, and MAC address and source address
//	    are those of a peer and its pods ............................ mark as believed
//	  source in a pod prefix of the cluster ........................ drop
//	  with WireGuard: source a node, destination a pod .............. drop
//
// WireGuard's allowed IPs let a packet in only if its source belongs to the peer whose key has encrypted it. With WireGuard no
// packet between a node and pods of another one comes in the clear.
//
// The backends' forward drops pod addresses without the mark first (notBelieved). So nothing is believed if another
// program flushed this table, and this node relays nothing that its peers would believe. The kernel's rp_filter is not needed: it looks at the interface only, and not at the neighbour.
func (n NodeChains) Senders(interfaces []string) tables.Chain {
	c := tables.Chain{
		Name: ChainSenders, Origin: tables.OfEveryPod{},
		Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookPrerouting, Priority: prioritySenders},
		Rules: []tables.Rule{
			{Action: tables.SetMark{Value: 0, Mask: MarkBelieved}, Comment: "is not believed yet"},
			{Matches: []tables.Match{n.gateway.in()}, Action: tables.Return{}, Comment: "the switch has checked the source"},
			{Matches: []tables.Match{tables.MatchInterface{Side: tables.Source, Name: loopback}}, Action: tables.Return{}, Comment: "this node itself"},
		},
	}
	if n.wireGuard {
		c.Rules = append(c.Rules, tables.Rule{
			Matches: []tables.Match{encrypted(tables.Source)},
			Action:  tables.SetMarkAndReturn{Value: MarkBelieved, Mask: MarkBelieved}, Comment: "the kernel has checked the source",
		})
	}
	for _, iface := range interfaces {
		for _, f := range model.Families() {
			c.Rules = append(c.Rules, tables.Rule{
				Matches: []tables.Match{
					tables.MatchInterface{Side: tables.Source, Name: iface}, tables.MatchSender{Family: f, Set: SendersSet(iface, f).Name},
				},
				Action: tables.SetMarkAndReturn{Value: MarkBelieved, Mask: MarkBelieved}, Comment: "from the node that owns the pod address",
			})
		}
	}
	c.Rules = append(c.Rules, forgedPods()...)
	if n.wireGuard {
		for _, f := range model.Families() {
			c.Rules = append(c.Rules, tables.Rule{
				Matches: []tables.Match{
					tables.MatchSet{Family: f, Side: tables.Source, Set: NodesSet(f)}, tables.MatchSet{Family: f, Side: tables.Destination, Set: PodNetworksSet(f)},
				},
				Action: tables.Drop{}, Comment: "from a node to a pod, not encrypted",
			})
		}
	}
	return c
}

// encrypted matches packets that come in or go out by the WireGuard device.
func encrypted(side tables.Side) tables.Match {
	return tables.MatchInterface{Side: side, Name: model.WireGuardDevice}
}

// priorityCleartext is before other programs and our backends change sources (99, 100).
const priorityCleartext = -160

// Cleartext renders the chain that keeps packets between nodes with WireGuard from leaving in the clear: while a
// peer has no key, and while the device or its routes are missing. It is in the table of Senders:
//
//	cleartext (postrouting, before sources change)
//	  out by gw, lo or the WireGuard device ......................... return
//	  destination in a pod prefix of the cluster .................... drop
//	  source in a pod prefix, destination a node .................... drop
//
// All pods of this node are behind gw, so the pods meant are those of peers.
func (n NodeChains) Cleartext() tables.Chain {
	c := tables.Chain{
		Name: ChainCleartext, Origin: tables.OfEveryPod{},
		Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookPostrouting, Priority: priorityCleartext},
		Rules: []tables.Rule{
			{Matches: []tables.Match{n.gateway.out()}, Action: tables.Return{}, Comment: "to a pod of this node"},
			{Matches: []tables.Match{tables.MatchInterface{Side: tables.Destination, Name: loopback}}, Action: tables.Return{}, Comment: "to this node itself"},
			{Matches: []tables.Match{encrypted(tables.Destination)}, Action: tables.Return{}, Comment: "is encrypted"},
		},
	}
	for _, f := range model.Families() {
		pods := func(side tables.Side) tables.Match {
			return tables.MatchSet{Family: f, Side: side, Set: PodNetworksSet(f)}
		}
		c.Rules = append(c.Rules,
			tables.Rule{Matches: []tables.Match{pods(tables.Destination)}, Action: tables.Drop{}, Comment: "to a pod of another node, not encrypted"},
			tables.Rule{
				Matches: []tables.Match{pods(tables.Source), tables.MatchSet{Family: f, Side: tables.Destination, Set: NodesSet(f)}},
				Action:  tables.Drop{}, Comment: "from a pod to another node, not encrypted",
			},
		)
	}
	return c
}
