package oracle

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/model"
)

// clusterRule is a rule of a ClusterNetworkPolicy. Egress peers have all fields
// that ingress peers have.
type clusterRule struct {
	id        RuleID
	action    v1alpha2.ClusterNetworkPolicyRuleAction
	peers     []v1alpha2.ClusterNetworkPolicyEgressPeer
	protocols []v1alpha2.ClusterNetworkPolicyProtocol
}

// askTier evaluates the policies of the admin or the baseline tier, in the order of their
// priorities, then of their names. The first rule that matches decides. The action is empty
// if no rule matches.
func (q question) askTier(tier model.Tier) (RuleID, v1alpha2.ClusterNetworkPolicyRuleAction) {
	policies := slices.DeleteFunc(slices.Clone(q.cluster.ClusterPolicies), func(p *v1alpha2.ClusterNetworkPolicy) bool {
		return q.cluster.staged(p.Annotations) || tierOf(p) != tier || !q.cluster.IsSubject(p, q.subject)
	})
	slices.SortFunc(policies, func(a, b *v1alpha2.ClusterNetworkPolicy) int {
		return cmp.Or(cmp.Compare(priorityOf(a), priorityOf(b)), cmp.Compare(a.Name, b.Name))
	})
	for _, p := range policies {
		for _, r := range clusterRules(p, q.direction) {
			if action := q.clusterAction(p, r); action != "" {
				return r.id, action
			}
		}
	}
	return RuleID{}, ""
}

// tierOf returns the policy's tier. An unknown one counts as the admin tier.
func tierOf(p *v1alpha2.ClusterNetworkPolicy) model.Tier {
	if p.Spec.Tier == v1alpha2.BaselineTier {
		return model.TierBaseline
	}
	return model.TierAdmin
}

// priorityOf returns the policy's priority. One that is out of range counts as the
// first.
func priorityOf(p *v1alpha2.ClusterNetworkPolicy) int32 {
	if p.Spec.Priority < 0 || p.Spec.Priority > 1000 {
		return 0
	}
	return p.Spec.Priority
}

// headUnderstood reports whether tier, priority and subject of a policy are valid.
func headUnderstood(p *v1alpha2.ClusterNetworkPolicy) bool {
	s := p.Spec.Subject
	known := p.Spec.Tier == v1alpha2.AdminTier || p.Spec.Tier == v1alpha2.BaselineTier
	return known && p.Spec.Priority >= 0 && p.Spec.Priority <= 1000 && peerUnderstood(v1alpha2.ClusterNetworkPolicyEgressPeer{Namespaces: s.Namespaces, Pods: s.Pods})
}

// IsSubject reports whether a ClusterNetworkPolicy applies to a pod. An invalid subject is every
// pod. Pods on a host's network are for the caller to leave out.
func (c *Cluster) IsSubject(p *v1alpha2.ClusterNetworkPolicy, pod *corev1.Pod) bool {
	s := p.Spec.Subject
	peer := v1alpha2.ClusterNetworkPolicyEgressPeer{Namespaces: s.Namespaces, Pods: s.Pods}
	if !peerUnderstood(peer) {
		return c.inNamespaces(&metav1.LabelSelector{}, pod)
	}
	return c.isPeer(peer, netip.Addr{}, pod)
}

// clusterAction returns the action of a rule for the packet, or "" if the rule does not
// match. Invalid parts fail closed. In an invalid rule, an Accept matches nothing, and a
// Deny or a Pass denies everything. In a policy with an invalid tier, priority or subject,
// an Accept matches nothing, and a Pass denies the packets that it matches.
func (q question) clusterAction(p *v1alpha2.ClusterNetworkPolicy, r clusterRule) v1alpha2.ClusterNetworkPolicyRuleAction {
	accept := r.action == v1alpha2.ClusterNetworkPolicyRuleActionAccept
	pass := r.action == v1alpha2.ClusterNetworkPolicyRuleActionPass
	understood := ruleUnderstood(r)
	switch {
	case accept && (!understood || !headUnderstood(p)):
		return ""
	case !understood:
		return v1alpha2.ClusterNetworkPolicyRuleActionDeny
	}
	peers := slices.ContainsFunc(r.peers, func(peer v1alpha2.ClusterNetworkPolicyEgressPeer) bool {
		return q.cluster.isPeer(peer, q.peer, q.peerPod)
	})
	protocols := len(r.protocols) == 0 || slices.ContainsFunc(r.protocols, func(protocol v1alpha2.ClusterNetworkPolicyProtocol) bool {
		return isProtocol(protocol, q.destination, q.packet)
	})
	switch {
	case !peers || !protocols:
		return ""
	case accept:
		return v1alpha2.ClusterNetworkPolicyRuleActionAccept
	case pass && headUnderstood(p):
		return v1alpha2.ClusterNetworkPolicyRuleActionPass
	}
	return v1alpha2.ClusterNetworkPolicyRuleActionDeny
}

// clusterRules returns the rules of a direction.
func clusterRules(p *v1alpha2.ClusterNetworkPolicy, d model.Direction) []clusterRule {
	var rules []clusterRule
	id := func(i int, title string) RuleID {
		return RuleID{model.PolicyID{Tier: tierOf(p), Name: p.Name}, fmt.Sprintf("%s[%d]", d, i), model.RuleTitle(title)}
	}
	if d == model.Egress {
		for i, r := range p.Spec.Egress {
			rules = append(rules, clusterRule{id(i, r.Name), r.Action, r.To, r.Protocols})
		}
		return rules
	}
	for i, r := range p.Spec.Ingress {
		rule := clusterRule{id: id(i, r.Name), action: r.Action, protocols: r.Protocols}
		for _, peer := range r.From {
			rule.peers = append(rule.peers, v1alpha2.ClusterNetworkPolicyEgressPeer{Namespaces: peer.Namespaces, Pods: peer.Pods})
		}
		rules = append(rules, rule)
	}
	return rules
}

// ruleUnderstood reports whether action, every peer and every protocol of a rule are
// as the API has them. Protocols are absent, or there is one. A rule with the name of a
// port has no peer that is networks or nodes.
func ruleUnderstood(r clusterRule) bool {
	switch r.action {
	case v1alpha2.ClusterNetworkPolicyRuleActionAccept, v1alpha2.ClusterNetworkPolicyRuleActionDeny, v1alpha2.ClusterNetworkPolicyRuleActionPass:
	default:
		return false
	}
	named := slices.ContainsFunc(r.protocols, func(p v1alpha2.ClusterNetworkPolicyProtocol) bool { return p.DestinationNamedPort != "" })
	nameless := slices.ContainsFunc(r.peers, func(p v1alpha2.ClusterNetworkPolicyEgressPeer) bool { return p.Nodes != nil || len(p.Networks) > 0 })
	if named && nameless || r.protocols != nil && len(r.protocols) == 0 {
		return false
	}
	return len(r.peers) > 0 &&
		!slices.ContainsFunc(r.peers, func(p v1alpha2.ClusterNetworkPolicyEgressPeer) bool { return !peerUnderstood(p) }) &&
		!slices.ContainsFunc(r.protocols, func(p v1alpha2.ClusterNetworkPolicyProtocol) bool { return !protocolUnderstood(p) })
}

// peerUnderstood reports whether exactly one field of the peer is set, it is supported
// (domainNames are not), and it is valid.
func peerUnderstood(p v1alpha2.ClusterNetworkPolicyEgressPeer) bool {
	set := 0
	for _, is := range []bool{p.Namespaces != nil, p.Pods != nil, p.Nodes != nil, len(p.Networks) > 0, len(p.DomainNames) > 0} {
		if is {
			set++
		}
	}
	if set != 1 || len(p.DomainNames) > 0 {
		return false
	}
	selectors := []*metav1.LabelSelector{p.Namespaces, p.Nodes}
	if p.Pods != nil {
		selectors = append(selectors, &p.Pods.NamespaceSelector, &p.Pods.PodSelector)
	}
	for _, s := range selectors {
		if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
			return false
		}
	}
	return !slices.ContainsFunc(p.Networks, func(n v1alpha2.CIDR) bool {
		cidr, err := parseCIDR(string(n))
		return err != nil || cidr.Addr().Is4In6()
	})
}

// isPeer reports whether a peer that is understood is the address, or its pod.
func (c *Cluster) isPeer(p v1alpha2.ClusterNetworkPolicyEgressPeer, a netip.Addr, pod *corev1.Pod) bool {
	switch {
	case p.Namespaces != nil:
		return pod != nil && c.inNamespaces(p.Namespaces, pod)
	case p.Pods != nil:
		return pod != nil && c.inNamespaces(&p.Pods.NamespaceSelector, pod) && matches(&p.Pods.PodSelector, pod.Labels)
	case p.Nodes != nil:
		return slices.ContainsFunc(c.Nodes, func(n *corev1.Node) bool {
			return matches(p.Nodes, n.Labels) && slices.ContainsFunc(n.Status.Addresses, func(one corev1.NodeAddress) bool {
				ip, err := netip.ParseAddr(one.Address)
				return err == nil && ip.Unmap() == a
			})
		})
	}
	return slices.ContainsFunc(p.Networks, func(n v1alpha2.CIDR) bool {
		return holds(string(n), a)
	})
}

// protocolUnderstood reports whether exactly one field of the protocol is set, and
// is valid.
func protocolUnderstood(p v1alpha2.ClusterNetworkPolicyProtocol) bool {
	set, port := 0, (*v1alpha2.Port)(nil)
	if p.TCP != nil {
		set, port = set+1, p.TCP.DestinationPort
	}
	if p.UDP != nil {
		set, port = set+1, p.UDP.DestinationPort
	}
	if p.SCTP != nil {
		set, port = set+1, p.SCTP.DestinationPort
	}
	if p.DestinationNamedPort != "" {
		return set == 0 && validName(p.DestinationNamedPort)
	}
	if set != 1 || port == nil {
		return false
	}
	if r := port.Range; r != nil {
		return port.Number == 0 && 1 <= r.Start && r.Start <= r.End && r.End <= 65535
	}
	return 1 <= port.Number && port.Number <= 65535
}

// isProtocol reports whether the packet is of a protocol that is understood. A port's
// name holds for every protocol under which the destination declares it.
func isProtocol(p v1alpha2.ClusterNetworkPolicyProtocol, destination *corev1.Pod, packet Packet) bool {
	var port *v1alpha2.Port
	switch {
	case p.DestinationNamedPort != "":
		names := map[model.Protocol]corev1.Protocol{model.TCP: corev1.ProtocolTCP, model.UDP: corev1.ProtocolUDP, model.SCTP: corev1.ProtocolSCTP}
		protocol, has := names[packet.Protocol]
		return has && declared(destination, p.DestinationNamedPort, protocol, packet.Port)
	case p.TCP != nil && packet.Protocol == model.TCP:
		port = p.TCP.DestinationPort
	case p.UDP != nil && packet.Protocol == model.UDP:
		port = p.UDP.DestinationPort
	case p.SCTP != nil && packet.Protocol == model.SCTP:
		port = p.SCTP.DestinationPort
	default:
		return false
	}
	if r := port.Range; r != nil {
		return r.Start <= int32(packet.Port) && int32(packet.Port) <= r.End
	}
	return port.Number == int32(packet.Port)
}

// inNamespaces reports whether the pod's namespace is one of those selected.
func (c *Cluster) inNamespaces(selector *metav1.LabelSelector, pod *corev1.Pod) bool {
	own := c.namespaceLabels(pod.Namespace)
	return own != nil && matches(selector, own)
}

// namespaceLabels returns the labels of a namespace, or nil if there is none of that name.
func (c *Cluster) namespaceLabels(name string) labels.Set {
	for _, n := range c.Namespaces {
		if n.Name == name {
			// The API server gives every namespace this label.
			return labels.Merge(labels.Set{corev1.LabelMetadataName: n.Name}, n.Labels)
		}
	}
	return nil
}
