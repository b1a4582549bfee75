package oracle

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// The grounds of a decision about a packet to or from a node itself.
const (
	SameNode     Why = "a node may always reach itself"
	FailsafePort Why = "kept open by the failsafe ports"
	PathMTU      Why = "a router says that a packet was too big"
	NotDenied    Why = "no policy of the node denies it"
)

// Host has what the objects do not say about a node.
type Host struct {
	// Addresses are those of the node that its object does not have. They count for its own policies only.
	Addresses []netip.Addr
	Failsafe  model.Failsafe
}

// NodeAt returns the node that has the address, or nil. An ExternalIP is often one of a router.
func (c *Cluster) NodeAt(a netip.Addr) *corev1.Node {
	at := slices.IndexFunc(c.Nodes, func(n *corev1.Node) bool {
		return has(n, a) || slices.Contains(c.Hosts[n.Name].Addresses, a)
	})
	if at < 0 {
		return nil
	}
	return c.Nodes[at]
}

// DecideHost returns what the policies of a node decide about its own packet in a direction, whatever its other end decides.
func (c *Cluster) DecideHost(d model.Direction, node *corev1.Node, p Packet) Decision {
	q := c.question(d, p, c.PodAt(p.Source), c.PodAt(p.Destination))
	q.subject, q.node = nil, node
	return q.decideNode()
}

// decideNode asks the policies of a node about its own packet: Antrea's, then those of its baseline tier.
func (q question) decideNode() Decision {
	if !q.cluster.HasHostPolicy(q.node) {
		return Decision{Allowed: true, Why: NotAPod}
	}
	if q.direction == model.Ingress {
		before := q
		before.preDNAT = true
		if denied := before.askHost(); !denied.Allowed {
			return denied
		}
	}
	return q.askHost()
}

// DecidePreDNAT returns what the policies of a node before DNAT decide about a packet from elsewhere, with the addresses that it comes with.
func (c *Cluster) DecidePreDNAT(node *corev1.Node, p Packet) Decision {
	return question{cluster: c, direction: model.Ingress, node: node, preDNAT: true, peer: p.Source, peerPod: c.PodAt(p.Source), packet: p, away: c.NodeAt(p.Destination) != node}.askHost()
}

func (q question) failsafe() bool {
	return q.cluster.Hosts[q.node.Name].Failsafe.Open(q.direction, q.peer, q.packet.Protocol, q.packet.Port)
}

// tooBig reports whether the packet is a router's answer to the node that a packet was too big. Pods are no routers: they come by the gateway port, but
// for those of other nodes without a tunnel. A packet to another address than the node's own, as before DNAT, is no such answer.
func (q question) tooBig() bool {
	protocol, message := model.PacketTooBig(model.FamilyOf(q.packet.Destination))
	return q.direction == model.Ingress && !q.away && q.peerPod == nil && q.packet.Protocol == protocol && q.packet.Port == message
}

// askHost asks the node's policies of one hook.
func (q question) askHost() Decision {
	out := Decision{Allowed: true, Why: FailsafePort, Node: q.node.Name}
	if q.failsafe() {
		return out
	}
	if q.tooBig() {
		out.Why = PathMTU
		return out
	}
	for _, baseline := range []bool{false, true} {
		rule, action := q.askAntrea(baseline)
		if action == antrea.Pass {
			out.Passed = append(out.Passed, rule)
			continue
		}
		if action == "" {
			continue
		}
		out.Policy, out.Rule, out.Title, out.Why = rule.Policy, rule.Rule, rule.Title, RuleAllows
		if action != antrea.Allow {
			out.Allowed, out.Why = false, RuleDenies
		}
		return out
	}
	out.Why = NotDenied
	return out
}

// HasHostPolicy reports whether a policy applies to the node itself.
func (c *Cluster) HasHostPolicy(node *corev1.Node) bool {
	return slices.ContainsFunc(c.Antrea.ClusterPolicies, func(p *antrea.ClusterNetworkPolicy) bool {
		return slices.ContainsFunc(model.Directions(), func(d model.Direction) bool { return IsHostSubject(p, d, node) })
	})
}

// IsHostSubject reports whether a rule of a policy applies to the node itself in a direction.
func IsHostSubject(p *antrea.ClusterNetworkPolicy, d model.Direction, node *corev1.Node) bool {
	rules := p.Spec.Ingress
	if d == model.Egress {
		rules = p.Spec.Egress
	}
	own := antreaClusterPolicy(p)
	return (d == model.Ingress || !own.preDNAT()) && slices.ContainsFunc(rules, func(r antrea.Rule) bool { return antreaAppliesToNode(own, r, node) })
}

// antreaAppliesToNode reports whether a rule applies to a node. Every entry of all appliedTo of the policy must be a nodeSelector, and
// no peer may be in the namespace of the subject.
func antreaAppliesToNode(p antreaPolicy, r antrea.Rule, node *corev1.Node) bool {
	for _, one := range slices.Concat(p.Ingress, p.Egress) {
		for _, peer := range slices.Concat(one.From, one.To) {
			if peer.Namespaces != nil && (peer.Namespaces.Match == antrea.MatchSelf || len(peer.Namespaces.SameLabels) > 0) {
				return false
			}
		}
	}
	if !p.forNodes() || p.misplaced() || (len(p.AppliedTo) > 0) == (len(r.AppliedTo) > 0) {
		return false
	}
	return slices.ContainsFunc(slices.Concat(p.AppliedTo, r.AppliedTo), func(e antrea.AppliedTo) bool { return matches(e.NodeSelector, node.Labels) })
}

// Annotations of policies: the first two of those for nodes.
const (
	preDNATAnnotation   = "felixlike.io/pre-dnat"
	untrackedAnnotation = "felixlike.io/untracked"
	enforceAnnotation   = "felixlike.io/enforce"
)

func antreaClusterPolicy(o *antrea.ClusterNetworkPolicy) antreaPolicy {
	return antreaPolicy{PolicySpec: o.Spec, cluster: true, name: o.Name, annotations: o.Annotations}
}

// preDNAT reports whether the policy, if it is one for nodes, is judged before DNAT.
func (p antreaPolicy) preDNAT() bool { return p.annotations[preDNATAnnotation] == "true" }

// misplaced reports whether an annotation keeps a policy for nodes from selecting any.
func (p antreaPolicy) misplaced() bool {
	bad := func(name string, valid ...string) bool {
		value, found := p.annotations[name]
		return found && !slices.Contains(valid, value)
	}
	return bad(preDNATAnnotation, "true", "false") || bad(untrackedAnnotation, "false") || p.annotations[enforceAnnotation] == "no"
}

// forNodes reports whether every entry of all appliedTo of a policy is a nodeSelector.
func (p antreaPolicy) forNodes() bool {
	entries := slices.Clone(p.AppliedTo)
	for _, one := range slices.Concat(p.Ingress, p.Egress) {
		entries = append(entries, one.AppliedTo...)
	}
	return p.cluster && !slices.ContainsFunc(entries, func(e antrea.AppliedTo) bool {
		return e.NodeSelector == nil || e != antrea.AppliedTo{NodeSelector: e.NodeSelector}
	})
}
