package migrate

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/felixlike/felixlike/felixlike/antrea"
)

// converted is a policy in the form that all sources are converted to.
type converted struct {
	// at is the row of the original.
	at     int
	origin Ref
	// name is that of the new objects. Without a namespace, the policy is for the whole cluster.
	namespace, name string
	subjects        []selection
	// nodes select nodes in place of subjects. preDNAT: before DNAT.
	nodes   []*metav1.LabelSelector
	preDNAT bool
	// tier is that of the parts; empty for Antrea's tier application.
	tier string
	// priority is that of the policy that isolates in the baseline tier.
	priority        float64
	ingress, egress direction
}

// direction is what a policy says of one direction.
type direction struct {
	// isolates: a packet that no rule of any policy matches is denied.
	isolates bool
	// parts are asked in the order of their priorities before NetworkPolicies of Kubernetes.
	parts []part
	// allows are rules of a NetworkPolicy of Kubernetes.
	allows []rule
}

// allowsFirst reports whether a rule for pods allows something before NetworkPolicies of Kubernetes.
func (p *converted) allowsFirst() bool {
	return len(p.nodes) == 0 && slices.ContainsFunc(slices.Concat(p.ingress.parts, p.egress.parts), func(one part) bool {
		return slices.ContainsFunc(one.rules, func(r rule) bool { return r.action == antrea.Allow })
	})
}

// part is a list of rules with a priority. suffix distinguishes the names of the parts of a policy.
type part struct {
	suffix   string
	priority float64
	rules    []rule
}

// rule allows or denies packets.
type rule struct {
	action antrea.Action
	// any: the rule is for every peer. Otherwise a rule without peers matches nothing.
	any   bool
	peers []peer
	// ports are all ports if there are none.
	ports []networkingv1.NetworkPolicyPort
	// icmp are the messages of ICMP that the rule is for. A rule has ports, icmp, neither or both.
	icmp []antrea.ICMP
	// onlyDNS: the original lets only DNS pass.
	onlyDNS bool
}

// peer is one of pods, a block, and all nodes.
type peer struct {
	pods  *selection
	block *antrea.IPBlock
	nodes bool
}

// selection selects pods. Without namespaces, it selects in the namespace of the policy.
type selection struct{ namespaces, pods *metav1.LabelSelector }

// empty reports whether the rule matches nothing.
func (r rule) empty() bool { return !r.any && len(r.peers) == 0 }

// matchesNodes reports whether the rule is for nodes too.
func (r rule) matchesNodes() bool {
	return r.any || slices.ContainsFunc(r.peers, func(p peer) bool { return p.nodes })
}

func withoutEmpty(rules []rule) []rule { return slices.DeleteFunc(rules, rule.empty) }

// needsAntrea reports whether a NetworkPolicy of Kubernetes cannot say the rule.
func (r rule) needsAntrea() bool {
	return r.action != antrea.Allow || !r.any && r.matchesNodes() || len(r.icmp) > 0
}

// block returns a prefix without exceptions, as a peer. Exceptions outside the prefix are left out. It returns nil if
// nothing of the prefix is left.
func block(prefix netip.Prefix, except []netip.Prefix) *peer {
	prefix = prefix.Masked()
	b := &antrea.IPBlock{CIDR: prefix.String()}
	var inside []netip.Prefix
	for _, e := range except {
		if e = e.Masked(); !e.Overlaps(prefix) {
			continue
		}
		if e.Bits() <= prefix.Bits() {
			return nil
		}
		if !slices.Contains(inside, e) {
			inside = append(inside, e)
			b.Except = append(b.Except, e.String())
		}
	}
	return &peer{block: b}
}

func kubernetesPeers(r rule) []networkingv1.NetworkPolicyPeer {
	var all []networkingv1.NetworkPolicyPeer
	for _, p := range r.peers {
		if p.block != nil {
			all = append(all, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: p.block.CIDR, Except: p.block.Except}})
			continue
		}
		all = append(all, networkingv1.NetworkPolicyPeer{PodSelector: p.pods.pods, NamespaceSelector: p.pods.namespaces})
	}
	return all
}

func antreaRules(rules []rule, egress bool) []antrea.Rule {
	var all []antrea.Rule
	for _, r := range rules {
		out := antrea.Rule{Action: r.action}
		var peers []antrea.Peer
		for _, p := range r.peers {
			switch {
			case p.block != nil:
				peers = append(peers, antrea.Peer{IPBlock: p.block})
			case p.nodes:
				peers = append(peers, antrea.Peer{NodeSelector: &metav1.LabelSelector{}})
			default:
				peers = append(peers, antrea.Peer{PodSelector: p.pods.pods, NamespaceSelector: p.pods.namespaces})
			}
		}
		if egress {
			out.To = peers
		} else {
			out.From = peers
		}
		for _, p := range r.ports {
			out.Ports = append(out.Ports, antrea.Port{Protocol: p.Protocol, Port: p.Port, EndPort: p.EndPort})
		}
		for _, m := range r.icmp {
			out.Protocols = append(out.Protocols, antrea.Protocol{ICMP: &m})
		}
		all = append(all, out)
	}
	return all
}

// protocolPort returns all ports of a protocol.
func protocolPort(protocol corev1.Protocol) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: &protocol}
}

// portRange returns ports of a protocol.
func portRange(protocol corev1.Protocol, first, last int32) networkingv1.NetworkPolicyPort {
	out := protocolPort(protocol)
	port := intstr.FromInt32(first)
	out.Port = &port
	if last != first {
		out.EndPort = &last
	}
	return out
}

// namedPort returns a port by its name in the destination pods.
func namedPort(protocol corev1.Protocol, name string) networkingv1.NetworkPolicyPort {
	out := protocolPort(protocol)
	port := intstr.FromString(name)
	out.Port = &port
	return out
}

// matchesAll reports whether the rule matches every packet.
func (r rule) matchesAll() bool { return r.any && len(r.ports)+len(r.icmp) == 0 }
