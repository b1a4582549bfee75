package preview

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// Proposal are NetworkPolicies that allow a packet at the ends that deny it.
type Proposal struct {
	// YAML has the policies, empty if none can help.
	YAML string
	// Notes say what they do not allow, and why.
	Notes []string
}

// Allow proposes NetworkPolicies for a packet: one for each end that denies it only because no rule allows it. A rule that denies it has to be
// changed itself. Each policy names both ends by their labels, so it may allow other pods with these labels too: Of shows which.
func Allow(o control.Objects, p oracle.Packet) (Proposal, error) {
	c := clusterOf(o, policiesOf(o))
	v := c.Evaluate(p)
	if v.Allowed {
		return Proposal{Notes: []string{"The policies allow this packet already."}}, nil
	}
	var all Proposal
	source, destination := c.PodAt(p.Source), c.PodAt(p.Destination)
	for _, end := range []struct {
		oracle.Decision
		direction networkingv1.PolicyType
		pod, peer *corev1.Pod
		other     netip.Addr
	}{
		{v.Egress, networkingv1.PolicyTypeEgress, source, destination, p.Destination},
		{v.Ingress, networkingv1.PolicyTypeIngress, destination, source, p.Source},
	} {
		switch {
		case end.Allowed:
			continue
		case end.Why != oracle.Isolated || end.pod == nil || end.Policy.Name != "":
			all.note("%s stays denied: %s.", end.direction, why(end.Decision))
			continue
		case p.Protocol.IsICMP():
			all.note("%s stays denied: a NetworkPolicy can allow ICMP only together with all ports.", end.direction)
			continue
		}
		np, err := proposed(end.direction, end.pod, end.peer, end.other, p)
		if err != nil {
			all.note("%s stays denied: %v.", end.direction, err)
			continue
		}
		for n, name := 2, np.Name; slices.ContainsFunc(o.Policies, func(known *networkingv1.NetworkPolicy) bool {
			return known.Namespace == np.Namespace && known.Name == np.Name
		}); n++ {
			np.Name = fmt.Sprintf("%s-%d", name, n) // it must not replace one
		}
		text, err := yaml.Marshal(np)
		if err != nil {
			return Proposal{}, err
		}
		if all.YAML != "" {
			all.YAML += "---\n"
		}
		all.YAML += string(text)
	}
	return all, nil
}

func (p *Proposal) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

// why is the ground of a decision that no NetworkPolicy changes.
func why(d oracle.Decision) string {
	if d.Policy.Name != "" {
		return fmt.Sprintf("%s %s denies it, which has to be changed itself", d.Policy, model.TitledRule(d.Rule, d.Title))
	}
	return string(d.Why)
}

// proposed writes the policy of one end.
func proposed(direction networkingv1.PolicyType, pod, other *corev1.Pod, address netip.Addr, p oracle.Packet) (*networkingv1.NetworkPolicy, error) {
	own, err := selectorOf(pod)
	if err != nil {
		return nil, err
	}
	peer := networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: netip.PrefixFrom(address, address.BitLen()).String()}}
	name := address.String()
	if other != nil {
		name = other.Name
		if peer, err = peerOf(pod, other); err != nil {
			return nil, err
		}
	}
	protocol, port := corev1.Protocol(strings.ToUpper(p.Protocol.String())), intstr.FromInt32(int32(p.Port))
	ports := []networkingv1.NetworkPolicyPort{{Protocol: &protocol, Port: &port}}
	np := &networkingv1.NetworkPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		Spec:     networkingv1.NetworkPolicySpec{PodSelector: *own, PolicyTypes: []networkingv1.PolicyType{direction}},
	}
	word := "to"
	if direction == networkingv1.PolicyTypeIngress {
		word = "from"
		np.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{peer}, Ports: ports}}
	} else {
		np.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{peer}, Ports: ports}}
	}
	np.Namespace, np.Name = pod.Namespace, objectName("allow", pod.Name, word, name, fmt.Sprint(p.Port), string(protocol))
	return np, nil
}

// peerOf names a pod as the peer of another one.
func peerOf(pod, other *corev1.Pod) (networkingv1.NetworkPolicyPeer, error) {
	selector, err := selectorOf(other)
	peer := networkingv1.NetworkPolicyPeer{PodSelector: selector}
	if other.Namespace != pod.Namespace {
		peer.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: other.Namespace}}
	}
	return peer, err
}

// ofOnePod are labels that a controller gives to one pod, or to one of its own revisions.
var ofOnePod = regexp.MustCompile(`(^|/)(pod-template-hash|pod-template-generation|controller-revision-hash|controller-uid|job-name|job-completion-index|pod-name|pod-index)$`)

// selectorOf selects a pod, and those that its controller makes in its place.
func selectorOf(pod *corev1.Pod) (*metav1.LabelSelector, error) {
	all := maps.Clone(pod.Labels)
	maps.DeleteFunc(all, func(key, _ string) bool { return ofOnePod.MatchString(key) })
	if len(all) == 0 {
		return nil, errors.New(podName(pod) + " has no label by which a policy could name it")
	}
	return &metav1.LabelSelector{MatchLabels: all}, nil
}

// longestName bounds the name of a proposed policy before a number that it may get.
const longestName = 60

// objectName makes a name of parts (RFC 1123).
func objectName(parts ...string) string {
	name := regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(strings.Join(parts, "-")), "-")
	if len(name) > longestName { // the end has the port and the protocol
		end := name[len(name)-longestName/2:]
		name = strings.Trim(name[:longestName/2], "-") + "-" + strings.Trim(end, "-")
	}
	return strings.Trim(name, "-")
}
