package oracle

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/model"
)

// Explanation is a verdict with all evaluated rules.
type Explanation struct {
	Verdict
	// EgressRules and IngressRules are the rules of the policies that isolate either end, in
	// their order, with their results.
	EgressRules, IngressRules []Asked
}

// Asked is an evaluated rule of a policy.
type Asked struct {
	Policy model.PolicyID
	// Rule is empty for a policy without a rule in the direction.
	Rule   string
	Allows bool
	// Because is the reason why it allows the packet or not.
	Because string
}

// Explain judges a packet as Evaluate does, and returns the result of every rule of the
// policies that isolate its ends.
func (c *Cluster) Explain(p Packet) Explanation {
	p.Source, p.Destination = p.Source.Unmap(), p.Destination.Unmap()
	e := Explanation{Verdict: c.Evaluate(p)}
	source, destination := c.PodAt(p.Source), c.PodAt(p.Destination)
	if len(e.Egress.Isolating) > 0 {
		e.EgressRules = c.question(model.Egress, p, source, destination).ask()
	}
	if len(e.Ingress.Isolating) > 0 {
		e.IngressRules = c.question(model.Ingress, p, source, destination).ask()
	}
	return e
}

// ask evaluates every rule of the policies that isolate the subject.
func (q question) ask() []Asked {
	var all []Asked
	for _, policy := range q.cluster.Policies {
		if q.isolating(policy) {
			all = append(all, q.askPolicy(policy)...)
		}
	}
	slices.SortStableFunc(all, func(a, b Asked) int { return a.Policy.Compare(b.Policy) })
	return all
}

func (q question) askPolicy(policy *networkingv1.NetworkPolicy) []Asked {
	d := q.direction
	id := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: policy.Namespace, Name: policy.Name}
	if _, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector); err != nil {
		return []Asked{{Policy: id, Because: "its podSelector cannot be understood, so it isolates and allows nothing"}}
	}
	if !declares(policy, d) {
		return []Asked{{Policy: id, Because: "its policyTypes cannot be understood, so it isolates and allows nothing"}}
	}
	rules := rulesOf(policy, d)
	if len(rules) == 0 {
		return []Asked{{Policy: id, Because: fmt.Sprintf("it has no %s rules, so it isolates and allows nothing", d)}}
	}
	var all []Asked
	for i, r := range rules {
		asked := Asked{Policy: id, Rule: fmt.Sprintf("%s[%d]", d, i)}
		peers, ports := q.anyPeer(r.From, policy.Namespace), anyPort(r.Ports, q.destination, q.packet)
		asked.Allows = peers && ports
		asked.Because = strings.Join([]string{peerWords(r.From, d, peers, q.peer, q.peerPod), portWords(r.Ports, ports, q.packet)}, ", ")
		all = append(all, asked)
	}
	return all
}

// peerWords describes whether the peer is one of a rule's peers.
func peerWords(peers []networkingv1.NetworkPolicyPeer, d model.Direction, is bool, a netip.Addr, pod *corev1.Pod) string {
	who, field := a.String(), "from"
	if pod != nil {
		who = pod.Namespace + "/" + pod.Name
	}
	if d == model.Egress {
		field = "to"
	}
	switch {
	case len(peers) == 0:
		return "any peer"
	case is:
		return fmt.Sprintf("%s is in %s", who, field)
	}
	return fmt.Sprintf("%s is not in %s (%s)", who, field, peersText(peers))
}

// portWords describes whether the packet's port is one of a rule's ports.
func portWords(ports []networkingv1.NetworkPolicyPort, is bool, p Packet) string {
	port := p.Protocol.String()
	if p.Port != 0 {
		port = model.PortRange{Protocol: p.Protocol, First: p.Port, Last: p.Port}.String()
	}
	switch {
	case len(ports) == 0:
		return "any port"
	case is:
		return port + " is in ports"
	}
	var all []string
	for _, one := range ports {
		all = append(all, portText(one))
	}
	return fmt.Sprintf("%s is not in ports (%s)", port, strings.Join(all, ", "))
}

func peersText(peers []networkingv1.NetworkPolicyPeer) string {
	var all []string
	for _, peer := range peers {
		var words []string
		if peer.NamespaceSelector != nil {
			words = append(words, "namespaces "+selectorText(peer.NamespaceSelector))
		}
		if peer.PodSelector != nil {
			words = append(words, "pods "+selectorText(peer.PodSelector))
		}
		if peer.IPBlock != nil {
			text := "addresses " + peer.IPBlock.CIDR
			if len(peer.IPBlock.Except) > 0 {
				text += " except " + strings.Join(peer.IPBlock.Except, " ")
			}
			words = append(words, text)
		}
		all = append(all, strings.Join(words, " "))
	}
	return strings.Join(all, ", or ")
}

func selectorText(s *metav1.LabelSelector) string {
	if len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0 {
		return "all"
	}
	return metav1.FormatLabelSelector(s)
}

func portText(p networkingv1.NetworkPolicyPort) string {
	text := "tcp"
	if p.Protocol != nil {
		text = strings.ToLower(string(*p.Protocol))
	}
	if p.Port != nil {
		text += "/" + p.Port.String()
	}
	if p.EndPort != nil {
		text += fmt.Sprintf("-%d", *p.EndPort)
	}
	return text
}
