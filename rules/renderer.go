package rules

import (
	"slices"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// Renderer renders policies to the chains of one table, and knows which policy has each
// chain, and whether rules with Log report. All else about it is immutable.
type Renderer struct {
	Names
	node NodeChains
	// nftables is true for rules of nftables: one rule can set a mark and return, and
	// sets change in one transaction with rules.
	nftables bool
	// hosts is true for the policies of the node itself (OfHosts).
	hosts    bool
	policies *Claims[PolicySide]
	// logs is true while rules with Log report.
	logs bool
}

// NewRenderer returns a renderer for the gateway port's interface name and a
// driver whose chain names may be maxName bytes long (at least
// IPTablesNameLength).
func NewRenderer(gateway string, maxName int) *Renderer {
	names := newNames(maxName)
	// Only nftables takes long names.
	return &Renderer{Names: names, node: NodeChains{gateway: gatewayPort{name: gateway}, iptables: !names.long()}, nftables: names.long(), policies: NewClaims(PolicySide.Compare)}
}

// Routed returns a renderer like r, for nodes whose packets between pods of different nodes may travel without
// a tunnel if routed is true.
func (r *Renderer) Routed(routed bool) *Renderer {
	other := *r
	other.node.routed = routed
	return &other
}

// Between returns a renderer like r, for nodes whose packets between pods of different nodes travel in the mode.
func (r *Renderer) Between(mode model.TrafficMode) *Renderer {
	other := r.Routed(mode != model.Encap && mode != model.PolicyOnly)
	other.node.wireGuard = mode == model.WireGuard
	other.node.gateway.policyOnly = mode == model.PolicyOnly
	return other
}

// Narrowed returns a renderer like r with fewer characters of label and hash in names.
// Tests use it to make names collide.
func (r *Renderer) Narrowed(label, hash int) *Renderer {
	narrow := NewRenderer(r.node.gateway.name, r.maxName)
	narrow.label, narrow.hash = label, hash
	return narrow
}

// SetsWithRules reports whether sets change in one transaction with rules.
func (r *Renderer) SetsWithRules() bool { return r.nftables }

// Node renders the chains that do not depend on policies.
func (r *Renderer) Node() NodeChains { return r.node }

// Policies has the claims of policies to their chains.
func (r *Renderer) Policies() *Claims[PolicySide] { return r.policies }

// PolicyRules renders the rules of one direction of a policy: a chain that returns
// when nothing matches. A packet that ingress allows is accepted there; one that
// egress allows returns with MarkJudged. Only rules of the given families are rendered.
// No action of iptables marks a packet and returns. So a packet that egress allows stays
// in the chain, and every rule matches only packets without the mark.
func (r *Renderer) PolicyRules(p *model.Policy, d model.Direction, families []model.Family) tables.Chain {
	chain := tables.Chain{Name: r.PolicyChain(p.ID, d), Origin: tables.OfPolicy{ID: p.ID, Direction: d}}
	for _, rule := range p.Rules(d) {
		for _, matches := range r.matchesOf(&rule, d, families) {
			decision := r.decision(p, &rule, d, matches)
			if rule.Log && r.logs {
				chain.Rules = append(chain.Rules, logged(p.ID, d, &rule, matches))
			}
			chain.Rules = append(chain.Rules, decision...)
		}
	}
	return chain
}

// actionIn returns the effective action in a tier. After the baseline tier comes only
// the default, which allows. So a Pass there must skip the policies that follow.
func actionIn(t model.Tier, a model.Action) model.Action {
	if t == model.TierBaseline && a == model.Pass {
		return model.Allow
	}
	return a
}

// decision renders the action for a packet that a policy's rule matched.
func (r *Renderer) decision(p *model.Policy, rule *model.Rule, d model.Direction, matches []tables.Match) []tables.Rule {
	comment := p.ID.String() + " " + rule.Name
	a, at := actionIn(p.ID.Tier, rule.Action), hostsPointOf(p, d)
	switch a {
	case model.Allow:
		return []tables.Rule{{Matches: matches, Action: r.allow(d), Comment: comment}}
	case model.Pass:
		if r.hosts {
			return []tables.Rule{{Matches: matches, Action: tables.Goto{Chain: at.baseline}, Comment: comment}}
		}
		passed := append(matches[:len(matches):len(matches)], tables.MatchMark{Value: MarkPass, Mask: MarkPass})
		return []tables.Rule{
			{Matches: matches, Action: tables.SetMark{Value: MarkPass, Mask: MarkPass}, Comment: comment},
			{Matches: passed, Action: tables.Return{}, Comment: comment},
		}
	}
	if a == model.Next {
		return []tables.Rule{{Matches: matches, Action: tables.Return{}, Comment: comment}}
	}
	if a == model.Reject {
		if r.hosts {
			return []tables.Rule{{Matches: matches, Action: tables.Goto{Chain: at.rejected}, Comment: comment}}
		}
		return []tables.Rule{{Matches: matches, Action: reject(d), Comment: comment}}
	}
	// Deny, and actions that this version does not know.
	if r.hosts {
		return []tables.Rule{{Matches: matches, Action: tables.Goto{Chain: at.denied}, Comment: comment}}
	}
	return []tables.Rule{{Matches: matches, Action: Deny(d), Comment: comment}}
}

// allow returns the action of a rule that allows the packet in one direction. It leads to
// no other chain: a kernel that validates by following every path would visit that chain
// once for each such rule.
func (r *Renderer) allow(d model.Direction) tables.Action {
	switch {
	case d == model.Ingress, r.hosts:
		return tables.Accept{}
	case r.nftables:
		return tables.SetMarkAndReturn{Value: MarkJudged, Mask: MarkJudged}
	}
	return tables.SetMark{Value: MarkJudged, Mask: MarkJudged}
}

// matchesOf returns the alternatives of a rule, with the match that the chain needs. The
// match on the mark is the last one, so that packets which the rule does not match never
// come to it.
func (r *Renderer) matchesOf(rule *model.Rule, d model.Direction, families []model.Family) [][]tables.Match {
	all := alternatives(rule, d, families)
	if d == model.Egress && !r.nftables {
		for i, matches := range all {
			all[i] = join(matches, []tables.Match{notJudged()})
		}
	}
	return all
}

// dispatchAllowed returns the verdict of dispatch for a pod without policies. A packet
// that egress allows still needs ingress, so it is marked and returns. The verdict of a map
// cannot set a mark, so a chain does.
func dispatchAllowed(d model.Direction) tables.Action {
	if d == model.Egress {
		return tables.Goto{Chain: ChainAllowedOut}
	}
	return tables.Accept{}
}

// peerSide returns the end of a packet that is the peer in a direction.
func peerSide(d model.Direction) tables.Side {
	if d == model.Egress {
		return tables.Destination
	}
	return tables.Source
}

// alternatives expands a rule, which is a product of unions, to the list of
// conjunctions that kernels evaluate. In each, the matches on ports precede the one on the
// peer: they cost a tenth of a look-up in a set, and most packets fail them.
func alternatives(rule *model.Rule, d model.Direction, families []model.Family) [][]tables.Match {
	side := peerSide(d)
	var all [][]tables.Match
	if rule.AnyPeer {
		for _, ports := range portMatches(rule) {
			if of := icmpFamily(ports); of == 0 || slices.Contains(families, of) {
				all = append(all, ports)
			}
		}
	}
	for _, f := range families {
		var peers [][]tables.Match
		if rule.AnyPeer {
			peers = [][]tables.Match{nil}
		}
		for _, g := range rule.Peers {
			if m := peerMatch(g, f, side); m != nil {
				peers = append(peers, []tables.Match{m})
			}
		}
		for _, peer := range peers {
			if !rule.AnyPeer {
				for _, ports := range portMatches(rule) {
					if of := icmpFamily(ports); of == 0 || of == f {
						all = append(all, join(ports, peer))
					}
				}
			}
			for _, g := range rule.NamedPorts {
				all = append(all, join(peer, []tables.Match{tables.MatchPortSet{Family: f, Set: ipsets.Name(g, f)}}))
			}
		}
	}
	return all
}

// peerMatch returns the match on the members of a group of one family, or nil if the group
// is one prefix of the other family. To compare with a prefix costs a third of a look-up in
// an interval set.
func peerMatch(g model.GroupID, f model.Family, side tables.Side) tables.Match {
	p, ok := g.Prefix()
	switch {
	case !ok:
		return tables.MatchSet{Family: f, Side: side, Set: ipsets.Name(g, f)}
	case model.FamilyOf(p.Addr()) == f:
		return tables.MatchPrefix{Side: side, Prefix: p}
	}
	return nil
}

// icmpFamily returns the family that a match on ICMP binds the alternative to, or zero.
func icmpFamily(ports []tables.Match) model.Family { return tables.Rule{Matches: ports}.Family() }

// portMatches returns the alternatives of the port dimension. Those of ICMP are for one family, the others
// for both.
func portMatches(rule *model.Rule) [][]tables.Match {
	if rule.AnyPort {
		return [][]tables.Match{nil}
	}
	var all [][]tables.Match
	for _, p := range rule.Ports {
		all = append(all, portMatch(p))
	}
	return all
}

func portMatch(p model.PortRange) []tables.Match {
	m := []tables.Match{tables.MatchProtocol{Protocol: p.Protocol}}
	kind, code, anyCode, icmp := p.ICMPRange()
	switch {
	case p.AllPorts():
	case icmp && anyCode:
		m = append(m, tables.MatchICMP{Type: kind, AnyCode: true})
	case icmp:
		m = append(m, tables.MatchICMP{Type: kind, Code: code})
	default:
		m = append(m, tables.MatchDestinationPorts{First: p.First, Last: p.Last})
	}
	return m
}

func join(a, b []tables.Match) []tables.Match {
	return append(append(make([]tables.Match, 0, len(a)+len(b)), a...), b...)
}
