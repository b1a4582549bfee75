package rules

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// priorityHosts is after filter (0) of other firewalls, and after our other tables at INPUT and OUTPUT (TunnelChains, Input): a pod's packet to
// its own node passes the pod's tiers first. At OUTPUT it is after NAT (-100), so policy sees the endpoint of a Service.
const priorityHosts = 10

// Names of the chains in the table of the node's own policies (Hosts).
const (
	ChainHostsInput   = "hosts-input"
	ChainHostsOutput  = "hosts-output"
	ChainHostsIngress = "hosts-ingress"
	ChainHostsEgress  = "hosts-egress"
	// The baseline tier, to which a Pass leads.
	ChainHostsIngressBaseline = "hosts-ingress-baseline"
	ChainHostsEgressBaseline  = "hosts-egress-baseline"
	// The names of the chains that drop denied packets are also the NFLOG prefixes of their reports.
	ChainHostsDeniedIn    = "hosts-denied-in"
	ChainHostsDeniedOut   = "hosts-denied-out"
	ChainHostsRejectedIn  = "hosts-rejected-in"
	ChainHostsRejectedOut = "hosts-rejected-out"
)

// hostsName returns one of two names by the direction.
func hostsName(d model.Direction, in, out string) string {
	if d == model.Egress {
		return out
	}
	return in
}

// HostsDenied returns the chain that drops the node's own packets which policy denies in a direction.
func HostsDenied(d model.Direction) string {
	return hostsName(d, ChainHostsDeniedIn, ChainHostsDeniedOut)
}

func hostsRejected(d model.Direction) string {
	return hostsName(d, ChainHostsRejectedIn, ChainHostsRejectedOut)
}

func hostsBaseline(d model.Direction) string {
	return hostsName(d, ChainHostsIngressBaseline, ChainHostsEgressBaseline)
}

// OfHosts returns a renderer like r for the policies of the node itself. One table judges each packet once: an Allow is final in both
// directions, and a Pass leads to the baseline tier. So the rules need no mark, which sockets and routing may look at.
func (r *Renderer) OfHosts() *Renderer {
	other := *r
	other.hosts, other.policies = true, NewClaims(PolicySide.Compare)
	return &other
}

// Hosts renders with r (OfHosts) the chains that judge packets to and from the node itself, in a table of their own that is the same beside every backend:
//
//	hosts-input (input), hosts-output (output)
//	  input: from the loopback interface ............ return
//	  output: to an address of this node ............ return
//	  of a connection that is known, no SYN ......... return
//	  neighbour discovery ........................... return
//	  only output: to a pod of this node ............ return
//	  a failsafe port ............................... return
//	  goto hosts-ingress, hosts-egress
//	    jump to each policy before the baseline tier
//	    goto hosts-ingress-baseline, hosts-egress-baseline
//	      jump to each policy of the baseline tier
//	      no policy denies it ....................... accept
//
// Forwarded packets do not come here. Connections that began before the first policy go on: their state decides.
func Hosts(r *Renderer, policies *model.HostPolicies, failsafe model.Failsafe, reported bool) []tables.Chain {
	var all []tables.Chain
	for _, d := range model.Directions() {
		point, base, list := tables.HookInput, ChainHostsInput, ChainHostsIngress
		local := tables.Match(tables.MatchInterface{Side: tables.Source, Name: "lo"})
		if d == model.Egress {
			point, base, list = tables.HookOutput, ChainHostsOutput, ChainHostsEgress
			// After DNAT at OUTPUT, the interface is still that of the former destination.
			local = tables.MatchLocal{Side: tables.Destination}
		}
		first := tables.Chain{Name: base, Hook: &tables.Hook{Type: tables.HookFilter, Point: point, Priority: priorityHosts}, Rules: []tables.Rule{
			{Matches: []tables.Match{local}, Action: tables.Return{}, Comment: "this node to itself"},
		}}
		first.Rules = append(first.Rules, goOn(tables.Return{}, "connections go on", known())...)
		first.Rules = append(first.Rules, neighbourDiscovery())
		if d == model.Egress {
			for _, f := range model.Families() {
				first.Rules = append(first.Rules, tables.Rule{
					Matches: []tables.Match{tables.MatchSet{Family: f, Side: tables.Destination, Set: OwnPodsSet(f).Name}},
					Action:  tables.Return{}, Comment: "to a pod of this node, as probes are",
				})
			}
		}
		for _, p := range failsafe.Ports(d) {
			first.Rules = append(first.Rules, tables.Rule{Matches: portMatch(p), Action: tables.Return{}, Comment: "failsafe"})
		}
		if failsafe.GRE {
			first.Rules = append(first.Rules, tables.Rule{Matches: []tables.Match{tables.MatchProtocol{Protocol: model.GRE}}, Action: tables.Return{}, Comment: "tunnel"})
		}
		first.Rules = append(first.Rules, tables.Rule{Action: tables.Goto{Chain: list}, Comment: "policies of this node"})
		own := policies.Applied(d)
		admin := tables.Chain{Name: list, Rules: append(jumps(r, d, own.Admin), tables.Rule{Action: tables.Goto{Chain: hostsBaseline(d)}, Comment: "baseline tier"})}
		baseline := tables.Chain{Name: hostsBaseline(d), Rules: append(jumps(r, d, own.Baseline), tables.Rule{Action: tables.Accept{}, Comment: "no policy denies it"})}
		rejected := tables.Chain{Name: hostsRejected(d), Rules: reports(HostsDenied(d), reported)}
		rejected.Rules = append(append(rejected.Rules, answers(rejectedComment(d), 0)...), tables.Rule{Action: tables.Drop{}, Comment: rejectedComment(d)})
		all = append(all, first, admin, baseline, drops(HostsDenied(d), deniedComment(d), reported), rejected)
	}
	for _, p := range policies.Policies {
		for _, d := range model.Directions() {
			if len(p.Rules(d)) > 0 {
				all = append(all, r.PolicyRules(p, d, model.Families()))
			}
		}
	}
	return all
}

func jumps(r *Renderer, d model.Direction, ids []model.PolicyID) (all []tables.Rule) {
	for _, id := range ids {
		all = append(all, tables.Rule{Action: tables.Jump{Chain: r.PolicyChain(id, d)}, Comment: id.String()})
	}
	return all
}
