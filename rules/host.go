package rules

import (
	"net/netip"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// Host is what the chains of the host are rendered from, where the switch judges
// and not the host.
type Host struct {
	Node *model.Node
	// Services are the prefixes of the addresses of Services.
	Services []netip.Prefix
	// Hairpins stand for the source of a pod that reaches itself through a
	// Service, at most one a family.
	Hairpins []netip.Addr
	// Masquerade hides pods behind the node's address on the way out of the
	// cluster.
	Masquerade bool
}

// HostSets returns the sets that the host's chains of one family look up besides
// PodNetworks, to be filled with the addresses of this node's pods, and with those of
// them that policy may keep from sending.
func HostSets(f model.Family) []ipsets.Set {
	return []ipsets.Set{
		{Name: HairpinSet(f), Kind: model.Loops, Family: f},
		{Name: EgressSet(f), Kind: model.Addresses, Family: f},
	}
}

// Host renders the chains of the host for the backend whose policy is in the
// switch. The switch judges by addresses, and lets pass whatever its own node sends.
// So the host has to see to it that addresses are true when they come to the switch,
// whoever rewrites them:
//
//	prerouting (before conntrack): around the switch ...... drop
//	forward
//	  in by gw    goto from-switch
//	  |             invalid ............................... drop
//	  |             out by gw: the switch will judge ...... accept
//	  |             to an address of Services that nobody has rewritten,
//	  |             or to what a Service leads outside, from a pod whose
//	  |             egress is judged: the switch has not .. drop
//	  out by gw   goto from-outside
//	                invalid ............................... drop
//	                source in a pod prefix, one that stands for a pod, or
//	                this node's own: forged ............... drop
//	sources (nat, before others masquerade)
//	  out by gw: a pod to itself ............ an address that stands for it
//	             to or from own pods ........ the source is kept
//	  else: from own pods ................... masquerade
//	rewritten (after all nat)
//	  out by gw, forwarded, to or from own pods, but with an address of this
//	  node as its source all the same ..................... drop
//
// Connections through Services and NodePorts so come to the switch as those of
// whoever began them, as the netfilter backends judge them.
func (r *Renderer) Host(h Host) []tables.Chain {
	return []tables.Chain{prerouting(), r.hostForward(), r.fromSwitch(h), hostFromOutside(h), r.hostSources(h), r.rewritten(h)}
}

func (r *Renderer) hostForward() tables.Chain {
	return tables.Chain{
		Name: ChainForward,
		Hook: &tables.Hook{Type: tables.HookFilter, Point: tables.HookForward, Priority: priorityRejected},
		Rules: []tables.Rule{
			{Matches: []tables.Match{r.in()}, Action: tables.Goto{Chain: ChainFromSwitch}, Comment: "from a pod or the tunnel"},
			{Matches: []tables.Match{r.out()}, Action: tables.Goto{Chain: ChainFromOutside}, Comment: "from outside to a pod"},
		},
	}
}

// fromSwitch judges what the switch leaves to whoever rewrites the address of a
// Service, if it does not come back to the switch.
func (r *Renderer) fromSwitch(h Host) tables.Chain {
	c := tables.Chain{Name: ChainFromSwitch, Rules: []tables.Rule{
		dropInvalid(),
		{Matches: []tables.Match{r.out()}, Action: tables.Accept{}, Comment: "the switch judges it"},
	}}
	for _, p := range h.Services {
		c.Rules = append(c.Rules, tables.Rule{
			Matches: []tables.Match{tables.MatchPrefix{Side: tables.Destination, Prefix: p}},
			Action:  tables.Goto{Chain: ChainNoService}, Comment: "address of a service",
		})
	}
	// By another backend, that is.
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

func hostFromOutside(h Host) tables.Chain {
	c := tables.Chain{Name: ChainFromOutside, Rules: []tables.Rule{dropInvalid()}}
	c.Rules = append(c.Rules, forgedPods()...)
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

// hostSources binds connections to the sources that the switch is to judge. A
// binding ends the search: what others would do to the source comes too late.
func (r *Renderer) hostSources(h Host) tables.Chain {
	c := r.sourcesChain()
	for _, a := range h.Hairpins {
		f := model.FamilyOf(a)
		c.Rules = append(c.Rules, tables.Rule{
			Matches: []tables.Match{r.out(), tables.MatchLoop{Family: f, Set: HairpinSet(f)}},
			Action:  tables.SourceNAT{To: a}, Comment: "a pod reaches itself through a service",
		})
	}
	c.Rules = append(c.Rules, tables.Rule{
		Matches: []tables.Match{r.out(), tables.MatchLocal{Side: tables.Source}},
		Action:  tables.Return{}, Comment: "from this node itself",
	})
	for _, side := range []tables.Side{tables.Destination, tables.Source} {
		for _, p := range h.Node.PodCIDRs {
			c.Rules = append(c.Rules, tables.Rule{
				Matches: []tables.Match{r.out(), tables.MatchPrefix{Side: side, Prefix: p}},
				Action:  tables.KeepSource{Family: model.FamilyOf(p.Addr())}, Comment: "the switch judges by the source",
			})
		}
	}
	if h.Masquerade {
		c.Rules = append(c.Rules, r.masquerade(h.Node)...)
	}
	return c
}

// rewritten drops what has got an address of this node for its source against
// hostSources: by a rule that comes before, or while that chain was not there. What
// another backend has let through goes on, whatever its source was made to be; a
// connection that is asked for from the ports of one of these would have its source.
func (r *Renderer) rewritten(h Host) tables.Chain {
	c := tables.Chain{
		Name:  ChainRewritten,
		Hook:  &tables.Hook{Type: tables.HookFilter, Point: tables.HookPostrouting, Priority: priorityRewritten},
		Rules: goOn(tables.Return{}, "connections that were allowed go on", markedAllowed()),
	}
	for _, p := range h.Node.PodCIDRs {
		for _, concerned := range []tables.Match{
			tables.MatchPrefix{Side: tables.Destination, Prefix: p}, tables.MatchConnSource{Prefix: p},
		} {
			c.Rules = append(c.Rules, tables.Rule{
				Matches: []tables.Match{
					r.out(), tables.MatchForwarded{}, concerned, tables.MatchConnOriginal{}, tables.MatchLocal{Side: tables.Source},
				},
				Action: tables.Drop{}, Comment: "the switch would take it for this node's own",
			})
		}
	}
	return c
}

// HostGuard renders what stands in for the chains of Host while they are loaded:
// connections go on, new ones have to wait, lest their sources are bound to
// something else.
func HostGuard(gateway string) []tables.Chain {
	return guard(gateway, goOn(tables.Accept{}, "connections go on", known()))
}

func (r *Renderer) in() tables.Match {
	return tables.MatchInterface{Side: tables.Source, Name: r.gateway}
}

func (r *Renderer) out() tables.Match {
	return tables.MatchInterface{Side: tables.Destination, Name: r.gateway}
}
