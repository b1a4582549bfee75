package rules

import (
	"net/netip"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// Host is the input of the host's chains for the backend that judges in the switch.
type Host struct {
	Node *model.Node
	// Services are the prefixes of the addresses of Services.
	Services []netip.Prefix
	// Hairpins replace the source of a pod that reaches itself through a Service, at most
	// one a family.
	Hairpins []netip.Addr
	// Masquerade replaces the source of packets from pods to the outside of the cluster by
	// the node's address.
	Masquerade bool
	// SNAT is set if the switch does that for IPv4.
	SNAT *SNAT
	// Numbered is set if the switch judges by numbers of tenants alone (package multitenant), and sends answers straight to the client.
	Numbered bool
}

// SNAT says where translated packets of pods come from and go to.
type SNAT struct {
	// Address is the node's own, and Bridge the interface with it, a bridge's local port.
	Address netip.Addr
	Bridge  string
}

// HostSets returns the sets that the host's chains of one family look up besides
// PodNetworksSet, to be filled with the addresses of this node's pods, and with those of
// them that policy may keep from sending.
func HostSets(f model.Family) []ipsets.Set {
	return []ipsets.Set{
		{Name: HairpinSet(f), Kind: model.Loops, Family: f},
		{Name: EgressSet(f), Kind: model.Addresses, Family: f},
	}
}

// Host renders the chains of the host for the backend that judges in the switch. The
// switch judges by addresses, and passes all packets of its own node. So the host must
// ensure that source addresses are true when packets come to the switch, although other
// programs rewrite them:
//
//	prerouting (before conntrack): around the switch ...... drop
//	  with SNAT: TCP to a translated port, from the uplink .. drop
//	input (only with Numbered)
//	  UDP to a tunnel's port, rewritten ..................... drop
//	forward
//	  with Numbered: UDP to a tunnel's port, rewritten ...... drop
//	  only in the modes noEncap and hybrid: neither in by gw nor marked as
//	    believed (see Senders), source in a pod prefix: forged  drop
//	  in by gw    goto from-switch
//	  |             invalid ............................... drop
//	  |             with Numbered: translated by others ... drop
//	  |             out by gw: the switch will judge ...... accept
//	  |             to an address of a Service, not rewritten;
//	  |             or through a Service to the outside, from a pod with
//	  |             judged egress: the switch has not ..... drop
//	  out by gw   goto from-outside
//	                invalid ............................... drop
//	                source in a pod prefix (encap only), a hairpin
//	                address, or this node's own: forged ... drop
//	sources (nat, before others masquerade)
//	  out by gw: a pod to itself ............ a hairpin address
//	             to or from own pods ........ the source is kept
//	  else: from own pods to peers, without a tunnel . the source is kept
//	        from own pods ................... masquerade
//	          (IPv4 with SNAT: only through a Service, or neither TCP nor UDP)
//	rewritten (after all nat)
//	  with SNAT, not out by gw: from an IPv4 pod, untranslated . drop
//	  out by gw, forwarded, to or from own pods, with an address of this
//	  node as its source .................................. drop
//	untranslated, with masquerade: see Sources
//
// So connections through Services and NodePorts come to the switch with the client's
// address. The netfilter backends judge them by the same address.
//
// With SNAT, the switch translates packets of pods to the outside. On its userspace datapath the kernel gets a copy of the answers,
// which it would reset.
//
// With Numbered, the switch has compared the numbers of client and Service (see numberedSources). No translated packet comes to a UDP port of a tunnel, on this node or through it,
// whoever has sent it: with the address of a node it would be one of the tunnel.
//
// Without a tunnel, packets of a peer's pods come from outside: the switch judges them by the
// pod's address, which Senders has believed.
func (n NodeChains) Host(h Host) []tables.Chain {
	all := ofEveryPod(n.hostPrerouting(h), n.hostForward(h), n.fromSwitch(h), n.hostFromOutside(h), n.hostSources(h))
	if h.Numbered {
		all = append(all, ofEveryPod(tables.Chain{Name: ChainInput, Hook: inputHook(), Rules: toTunnels()})...)
	} else {
		all = append(all, ofEveryPod(n.rewritten(h))...)
	}
	if h.Masquerade {
		all = append(all, n.untranslated(h.Node))
	}
	return all
}

func (n NodeChains) hostPrerouting(h Host) tables.Chain {
	c := prerouting()
	if h.SNAT == nil {
		return c
	}
	not := func(name string) tables.Match {
		return tables.MatchInterface{Side: tables.Source, Name: name, Negated: true}
	}
	ports := model.SNATPorts()
	c.Rules = append(c.Rules, tables.Rule{
		Matches: []tables.Match{
			not(h.SNAT.Bridge), n.gateway.notIn(), not(loopback),
			tables.MatchPrefix{Side: tables.Destination, Prefix: single(h.SNAT.Address)},
			tables.MatchProtocol{Protocol: model.TCP},
			tables.MatchDestinationPorts{First: ports.First, Last: ports.Last},
		},
		Action: tables.Drop{}, Comment: "the switch has this packet too",
	})
	return c
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// toTunnels returns rules that drop translated packets to tunnels.
func toTunnels() (all []tables.Rule) {
	for _, port := range model.TunnelPorts() {
		all = append(all, tables.Rule{
			Matches: []tables.Match{tables.MatchConnDNAT{}, tables.MatchProtocol{Protocol: model.UDP}, tables.MatchDestinationPorts{First: port, Last: port}},
			Action:  tables.Drop{}, Comment: "a service leads to a tunnel",
		})
	}
	return all
}

func (n NodeChains) hostForward(h Host) tables.Chain {
	var rules []tables.Rule
	if h.Numbered {
		rules = toTunnels()
	}
	if n.routed {
		rules = append(rules, n.notBelieved()...)
	}
	return tables.Chain{
		Name: ChainForward,
		Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookForward, Priority: priorityRejected},
		Rules: append(rules,
			tables.Rule{Matches: []tables.Match{n.gateway.in()}, Action: tables.Goto{Chain: ChainFromSwitch}, Comment: "from a pod or the tunnel"},
			tables.Rule{Matches: []tables.Match{n.gateway.out()}, Action: tables.Goto{Chain: ChainFromOutside}, Comment: "from outside to a pod"},
		),
	}
}

// fromSwitch judges packets to a Service. The switch passes them unjudged to the
// host's proxy; some of them do not come back to the switch.
func (n NodeChains) fromSwitch(h Host) tables.Chain {
	c := tables.Chain{Name: ChainFromSwitch, Rules: []tables.Rule{
		dropInvalid(), forwardedDiscovery(),
	}}
	if h.Numbered {
		c.Rules = append(c.Rules, tables.Rule{
			Matches: []tables.Match{tables.MatchConnDNAT{}, tables.MatchConnOriginal{}, tables.MatchConnMark{Value: 0, Mask: MarkService}},
			Action:  tables.Drop{}, Comment: "translated by another program, which compares no numbers",
		})
	}
	c.Rules = append(c.Rules, tables.Rule{Matches: []tables.Match{n.gateway.out()}, Action: tables.Accept{}, Comment: "the switch judges it"})
	for _, p := range h.Services {
		c.Rules = append(c.Rules, tables.Rule{
			Matches: []tables.Match{tables.MatchPrefix{Side: tables.Destination, Prefix: p}},
			Action:  tables.Goto{Chain: ChainNoService}, Comment: "address of a service",
		})
	}
	// Another backend allowed them.
	c.Rules = append(c.Rules, goOn(tables.Accept{}, "connections that were allowed go on", markedAllowed())...)
	for _, f := range model.Families() {
		c.Rules = append(c.Rules, tables.Rule{
			Matches: []tables.Match{
				tables.MatchConnDNAT{},
				tables.MatchConnOriginal{},
				tables.MatchSet{Family: f, Side: tables.Source, Set: EgressSet(f)},
			},
			Action: tables.Drop{}, Comment: "a service leads outside, past the pod's egress policies",
		})
	}
	return c
}

func (n NodeChains) hostFromOutside(h Host) tables.Chain {
	c := tables.Chain{Name: ChainFromOutside, Rules: []tables.Rule{dropInvalid(), forwardedDiscovery()}}
	if !n.routed { // else forward drops them, see notBelieved
		c.Rules = append(c.Rules, forgedPods()...)
	}
	for _, a := range h.Hairpins {
		c.Rules = append(c.Rules, tables.Rule{
			Matches: []tables.Match{tables.MatchPrefix{Side: tables.Source, Prefix: netip.PrefixFrom(a, a.BitLen())}},
			Action:  tables.Drop{}, Comment: "the switch would take it for the pod that it is for",
		})
	}
	c.Rules = append(c.Rules, tables.Rule{
		Matches: []tables.Match{tables.MatchLocal{Side: tables.Source}},
		Action:  tables.Drop{}, Comment: "this node's address from outside is forged",
	})
	return c
}

// hostSources binds connections to the source addresses by which the switch must judge
// them. NAT binds a connection's source once, so later rules of other programs do not
// change it.
func (n NodeChains) hostSources(h Host) tables.Chain {
	c := sourcesChain()
	for _, a := range h.Hairpins {
		f := model.FamilyOf(a)
		c.Rules = append(c.Rules, tables.Rule{
			Matches: []tables.Match{n.gateway.out(), tables.MatchLoop{Family: f, Set: HairpinSet(f)}},
			Action:  tables.SourceNAT{To: a}, Comment: "a pod reaches itself through a service",
		})
	}
	if h.Numbered {
		c.Rules = append(c.Rules, n.numberedSources(h.Node)...)
	}
	c.Rules = append(c.Rules, tables.Rule{
		Matches: []tables.Match{n.gateway.out(), tables.MatchLocal{Side: tables.Source}},
		Action:  tables.Return{}, Comment: "from this node itself",
	})
	for _, side := range []tables.Side{tables.Destination, tables.Source} {
		for _, p := range h.Node.PodCIDRs {
			c.Rules = append(c.Rules, tables.Rule{
				Matches: []tables.Match{n.gateway.out(), tables.MatchPrefix{Side: side, Prefix: p}},
				Action:  tables.KeepSource{Family: model.FamilyOf(p.Addr())}, Comment: "the switch judges by the source",
			})
		}
	}
	if n.routed {
		for _, p := range h.Node.PodCIDRs {
			c.Rules = append(c.Rules, n.gateway.keptToPeers(p))
		}
	}
	if h.Masquerade {
		c.Rules = append(c.Rules, n.masquerade(h.Node, h.SNAT != nil)...)
	}
	return c
}

// numberedSources gives packets the gateway port's address where the switch compares numbers: other nodes believe no other address of this node, and
// answers to what a Service has translated have to come back to the host.
func (n NodeChains) numberedSources(node *model.Node) (all []tables.Rule) {
	for _, p := range node.PodCIDRs {
		if model.FamilyOf(p.Addr()) != model.IPv4 {
			continue
		}
		all = append(all,
			tables.Rule{
				Matches: []tables.Match{n.gateway.out(), tables.MatchLocal{Side: tables.Source}, tables.MatchPrefix{Side: tables.Destination, Prefix: p, Negated: true}},
				Action:  tables.Masquerade{}, Comment: "from this node to another node's pods",
			},
			tables.Rule{
				Matches: []tables.Match{n.gateway.out(), tables.MatchPrefix{Side: tables.Source, Prefix: p}, tables.MatchConnDNAT{}},
				Action:  tables.Masquerade{}, Comment: "a pod through a service",
			})
	}
	return all
}

// rewritten drops packets that have an address of this node as their source although
// hostSources keeps sources: a rule before that chain rewrote them, or the chain was
// missing. Connections that another backend allowed go on with any source. A SYN is
// checked even so: a new connection from the ports of such a connection would get its
// source.
func (n NodeChains) rewritten(h Host) tables.Chain {
	c := tables.Chain{
		Name: ChainRewritten,
		Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookPostrouting, Priority: priorityRewritten},
	}
	for _, p := range h.Node.PodCIDRs {
		if h.SNAT != nil && p.Addr().Is4() {
			c.Rules = append(c.Rules, tables.Rule{
				Matches: []tables.Match{
					n.gateway.notOut(), tables.MatchPrefix{Side: tables.Source, Prefix: p}, tables.MatchConnOriginal{},
				},
				Action: tables.Drop{}, Comment: "the switch translates packets of pods to outside",
			})
		}
	}
	c.Rules = append(c.Rules, goOn(tables.Return{}, "connections that were allowed go on", markedAllowed())...)
	for _, p := range h.Node.PodCIDRs {
		for _, concerned := range []tables.Match{
			tables.MatchPrefix{Side: tables.Destination, Prefix: p}, tables.MatchConnSource{Prefix: p},
		} {
			c.Rules = append(c.Rules, tables.Rule{
				Matches: []tables.Match{
					n.gateway.out(), tables.MatchForwarded{}, concerned, tables.MatchConnOriginal{}, tables.MatchLocal{Side: tables.Source},
				},
				Action: tables.Drop{}, Comment: "the switch would take it for this node's own",
			})
		}
	}
	return c
}

// HostGuard renders the chains that replace those of Host while they are loaded.
// Connections go on. New ones have to wait, so that NAT does not bind their source to
// another address.
func HostGuard(gateway string) []tables.Chain {
	return guard(gateway, goOn(tables.Accept{}, "connections go on", known()))
}
