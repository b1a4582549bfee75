package rules

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

const (
	// priorityHosts is after filter (0) of other firewalls, and after our other tables at INPUT and OUTPUT (TunnelChains, Input): a pod's packet to
	// its own node passes the pod's tiers first. At OUTPUT it is after NAT (-100), so policy sees the endpoint of a Service.
	priorityHosts = 10
	// priorityPreDNAT is after connection tracking (-200), before "mangle" (-150), where others may set the whole mark of a packet, and
	// before all NAT (-100) and the source ranges of kube-proxy (-110).
	priorityPreDNAT = -160
)

// Names of the chains in the table of the node's own policies (Hosts).
const (
	ChainHostsInput      = "hosts-input"
	ChainHostsOutput     = "hosts-output"
	ChainHostsPrerouting = "hosts-prerouting"
	ChainHostsIngress    = "hosts-ingress"
	ChainHostsEgress     = "hosts-egress"
	ChainHostsPreDNAT    = "hosts-pre-dnat"
	// The baseline tier, to which a Pass leads.
	ChainHostsIngressBaseline = "hosts-ingress-baseline"
	ChainHostsEgressBaseline  = "hosts-egress-baseline"
	ChainHostsPreDNATBaseline = "hosts-pre-dnat-baseline"
	// The names of the chains that drop denied packets are also the NFLOG prefixes of their reports.
	ChainHostsDeniedIn        = "hosts-denied-in"
	ChainHostsDeniedOut       = "hosts-denied-out"
	ChainHostsDeniedPreDNAT   = "hosts-denied-pre-dnat"
	ChainHostsRejectedIn      = "hosts-rejected-in"
	ChainHostsRejectedOut     = "hosts-rejected-out"
	ChainHostsRejectedPreDNAT = "hosts-rejected-pre-dnat"
)

// HostsDenied returns the chain that drops the node's own packets which policy denies in a direction, at INPUT or OUTPUT.
func HostsDenied(d model.Direction) string {
	if d == model.Egress {
		return ChainHostsDeniedOut
	}
	return ChainHostsDeniedIn
}

// HostsRejected returns the chain that answers, and drops, those that policy rejects there.
func HostsRejected(d model.Direction) string {
	if d == model.Egress {
		return ChainHostsRejectedOut
	}
	return ChainHostsRejectedIn
}

// hostsPoint is a hook at which policies of the node judge, with the names of its chains: the base chain, the lists of policies before the
// baseline tier and in it, and the chains that end a denied and a rejected packet's way.
type hostsPoint struct {
	direction                              model.Direction
	hook                                   tables.Hook
	base, list, baseline, denied, rejected string
}

func hostsInput() hostsPoint {
	return hostsPoint{
		model.Ingress,
		tables.Hook{Type: tables.HookFilter, Point: tables.HookInput, Priority: priorityHosts},
		ChainHostsInput, ChainHostsIngress, ChainHostsIngressBaseline, ChainHostsDeniedIn, ChainHostsRejectedIn,
	}
}

func hostsOutput() hostsPoint {
	return hostsPoint{
		model.Egress,
		tables.Hook{Type: tables.HookFilter, Point: tables.HookOutput, Priority: priorityHosts},
		ChainHostsOutput, ChainHostsEgress, ChainHostsEgressBaseline, ChainHostsDeniedOut, ChainHostsRejectedOut,
	}
}

func hostsPreDNAT() hostsPoint {
	return hostsPoint{
		model.Ingress,
		tables.Hook{Type: tables.HookFilter, Point: tables.HookPrerouting, Priority: priorityPreDNAT},
		ChainHostsPrerouting, ChainHostsPreDNAT, ChainHostsPreDNATBaseline, ChainHostsDeniedPreDNAT, ChainHostsRejectedPreDNAT,
	}
}

// hostsPointOf returns where a policy of the node judges one direction.
func hostsPointOf(p *model.Policy, d model.Direction) hostsPoint {
	switch {
	case p.PreDNAT:
		return hostsPreDNAT()
	case d == model.Egress:
		return hostsOutput()
	}
	return hostsInput()
}

// OfHosts returns a renderer like r for the policies of the node itself. Each hook judges a packet once: an Allow is final there in both
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
//	  only input: not from a pod of this node or the tunnel, a packet was too big: return
//	  only output: to a pod of this node ............ return
//	  a failsafe port ............................... return
//	  goto hosts-ingress, hosts-egress
//	    jump to each policy before the baseline tier
//	    goto hosts-ingress-baseline, hosts-egress-baseline
//	      jump to each policy of the baseline tier
//	      no policy denies it ....................... accept
//
// Only with policies before DNAT:
//
//	hosts-prerouting (prerouting, after connection tracking and before NAT)
//	  from the loopback interface ................... return
//	  of a connection that is known, no SYN ......... return
//	  neighbour discovery ........................... return
//	  to an address of this node, and not from a pod of this node or the tunnel, a packet was too big: return
//	  to no address of this node, and from a pod of this node or the tunnel, or to a pod: return
//	  a failsafe port ............................... return
//	  goto hosts-pre-dnat, as above
//
// Who sends is known by the interface, or with another CNI plugin by the mark of PodSources: never by the source address. The pods' own prefixes have
// an address of the node, that of the gateway port, so what is the node's own is known first. What forwards to others passes the first two chains by. Connections that
// began before the first policy go on: their state decides.
func Hosts(r *Renderer, policies *model.HostPolicies, failsafe model.Failsafe, reported bool) []tables.Chain {
	all := append(hostsInput().chains(r, policies.Ingress, failsafe, reported), hostsOutput().chains(r, policies.Egress, failsafe, reported)...)
	if !policies.PreDNAT.Empty() {
		all = append(all, hostsPreDNAT().chains(r, policies.PreDNAT, failsafe, reported)...)
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

// chains renders the chains of a hook with the policies that judge there.
func (at hostsPoint) chains(r *Renderer, own model.Applied, failsafe model.Failsafe, reported bool) []tables.Chain {
	d := at.direction
	// After DNAT at OUTPUT, the interface is still that of the former destination.
	itself := tables.Match(tables.MatchLocal{Side: tables.Destination})
	if d == model.Ingress {
		itself = tables.MatchInterface{Side: tables.Source, Name: loopback}
	}
	first := tables.Chain{Name: at.base, Hook: &at.hook, Rules: []tables.Rule{{Matches: []tables.Match{itself}, Action: tables.Return{}, Comment: "this node to itself"}}}
	first.Rules = append(first.Rules, goOn(tables.Return{}, "connections go on", known())...)
	first.Rules = append(first.Rules, neighbourDiscovery())
	if d == model.Ingress {
		first.Rules = append(first.Rules, at.tooBig(r.node.gateway)...)
	}
	switch at.hook.Point {
	case tables.HookOutput:
		first.Rules = append(first.Rules, passedTo(ownPods, "to a pod of this node, as probes are")...)
	case tables.HookPrerouting:
		away := tables.MatchLocal{Side: tables.Destination, Negated: true}
		first.Rules = append(first.Rules, tables.Rule{Matches: []tables.Match{r.node.gateway.in(), away}, Action: tables.Return{}, Comment: "from a pod, and not to this node"})
		first.Rules = append(first.Rules, passedTo(ownPods, "to a pod of this node", away)...)
		first.Rules = append(first.Rules, passedTo(PodNetworksSet, "to a pod", away)...)
	}
	for _, p := range failsafe.Ports(d) {
		matches := portMatch(p.PortRange)
		if p.Net.IsValid() {
			matches = append(matches, tables.MatchPrefix{Side: peerSide(d), Prefix: p.Net})
		}
		first.Rules = append(first.Rules, tables.Rule{Matches: matches, Action: tables.Return{}, Comment: "failsafe"})
	}
	if failsafe.GRE {
		first.Rules = append(first.Rules, tables.Rule{Matches: []tables.Match{tables.MatchProtocol{Protocol: model.GRE}}, Action: tables.Return{}, Comment: "tunnel"})
	}
	first.Rules = append(first.Rules, tables.Rule{Action: tables.Goto{Chain: at.list}, Comment: "policies of this node"})
	admin := tables.Chain{Name: at.list, Rules: append(jumps(r, d, own.Admin), tables.Rule{Action: tables.Goto{Chain: at.baseline}, Comment: "baseline tier"})}
	baseline := tables.Chain{Name: at.baseline, Rules: append(jumps(r, d, own.Baseline), tables.Rule{Action: tables.Accept{}, Comment: "no policy denies it"})}
	rejected := tables.Chain{Name: at.rejected, Rules: reports(at.denied, reported)}
	rejected.Rules = append(append(rejected.Rules, answers(rejectedComment(d), 0)...), tables.Rule{Action: tables.Drop{}, Comment: rejectedComment(d)})
	return []tables.Chain{first, admin, baseline, drops(at.denied, deniedComment(d), reported), rejected}
}

// tooBig returns from a base chain with a router's answers to this node that a packet was too big. Packets of the tunnel are not tracked (TunnelChains), so
// such an answer belongs to no connection. The kernel looks for the socket that sent the packet. A pod could forge one, but is no router of the tunnel.
func (at hostsPoint) tooBig(g gatewayPort) (all []tables.Rule) {
	for _, f := range model.Families() {
		protocol, message := model.PacketTooBig(f)
		matches := append(portMatch(model.PortRange{Protocol: protocol, First: message, Last: message}), g.notIn())
		if at.hook.Point == tables.HookPrerouting {
			matches = append(matches, tables.MatchLocal{Side: tables.Destination})
		}
		all = append(all, tables.Rule{Matches: matches, Action: tables.Return{}, Comment: "path MTU"})
	}
	return all
}

// passedTo returns from a base chain with packets to members of the sets of both families.
func passedTo(set func(model.Family) string, comment string, more ...tables.Match) (all []tables.Rule) {
	for _, f := range model.Families() {
		all = append(all, tables.Rule{
			Matches: append([]tables.Match{tables.MatchSet{Family: f, Side: tables.Destination, Set: set(f)}}, more...), Action: tables.Return{}, Comment: comment,
		})
	}
	return all
}

func ownPods(f model.Family) string { return OwnPodsSet(f).Name }

func jumps(r *Renderer, d model.Direction, ids []model.PolicyID) (all []tables.Rule) {
	for _, id := range ids {
		all = append(all, tables.Rule{Action: tables.Jump{Chain: r.PolicyChain(id, d)}, Comment: id.String()})
	}
	return all
}
