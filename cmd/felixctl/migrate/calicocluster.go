package migrate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	policyapi "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
)

// mostPriorities is how many whole priorities from 1 on a tier of ClusterNetworkPolicies has.
const mostPriorities = 1000

// Reasons why what a GlobalNetworkPolicy becomes is of Antrea's kind.
const (
	stayIngress  = "a ClusterNetworkPolicy of Kubernetes has no ingress peers but pods"
	stayExcept   = "a ClusterNetworkPolicy of Kubernetes has no networks with exceptions"
	stayPorts    = "a ClusterNetworkPolicy of Kubernetes has ports by number alone, neither all ports of a protocol, nor ICMP, nor a name for one protocol"
	staySubject  = "a ClusterNetworkPolicy of Kubernetes has one subject, and the selector has alternatives"
	stayMany     = "a ClusterNetworkPolicy of Kubernetes has at most 25 rules a direction, 25 peers and 25 ports a rule"
	stayPriority = "ClusterNetworkPolicies of Kubernetes have 1000 priorities"
	stayOrder    = "a later policy with another action is of Antrea's kind, and would come before it"
	stayOthers   = "the input has ClusterNetworkPolicies, AdminNetworkPolicies or policies of Antrea, which would come before it or after it"
)

// clusterNetworkPolicy is a ClusterNetworkPolicy of Kubernetes without a status.
type clusterNetworkPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              policyapi.ClusterNetworkPolicySpec `json:"spec"`
}

// misfit says why one of Antrea's policies is no ClusterNetworkPolicy of Kubernetes. Without a reason, it is one.
type misfit struct{ object, field, reason string }

// defaultKinds chooses the kinds of what the policies of the tier default become, from the last to the first.
type defaultKinds struct {
	// others: the input has policies of other APIs whose order with these matters.
	others bool
	// used is the number of priorities in use.
	used map[policyapi.Tier]int
	// ingress and egress have the actions of later policies of Antrea's kinds before NetworkPolicies.
	ingress, egress map[antrea.Action]bool
	// stay are the policies that stay of Antrea's kind, the last first.
	stay []misfit
}

// ofOtherTiers reports whether an object of the input is a policy of a tier of another API than Calico's.
func ofOtherTiers(d document) bool {
	return isPolicy(d.ref) && slices.Contains([]string{policyapi.GroupName, antrea.GroupName}, groupOf(d.ref.APIVersion))
}

// emitDefault adds the policies of the tier default to the output. Antrea's policies for pods of the whole cluster become
// ClusterNetworkPolicies of Kubernetes if these give each packet the same verdict. In the tiers before NetworkPolicies, such a
// policy is evaluated after all of Antrea's: it may only move past later ones that stay Antrea's if their order does not matter.
func (c *conversion) emitDefault(all []*converted, others bool) {
	k := defaultKinds{others: others, used: map[policyapi.Tier]int{}, ingress: map[antrea.Action]bool{}, egress: map[antrea.Action]bool{}}
	rendered := make([][]metav1.Object, len(all))
	for i, p := range slices.Backward(all) {
		rendered[i] = p.render()
		if len(p.nodes) > 0 {
			continue // a policy for nodes is never evaluated together with one for pods
		}
		for j, o := range slices.Backward(rendered[i]) {
			rendered[i][j] = k.choose(o)
		}
	}
	next := map[policyapi.Tier]int32{}
	for i, p := range all {
		for _, o := range rendered[i] {
			if policy, is := o.(*clusterNetworkPolicy); is {
				next[policy.Spec.Tier]++
				policy.Spec.Priority = next[policy.Spec.Tier]
			}
		}
		c.emit(p.at, rendered[i])
	}
	for _, why := range stayNotes(k.stay) {
		c.note(why)
	}
}

// choose returns the ClusterNetworkPolicy of Kubernetes that decides as the object does, without its priority, or the object.
func (k *defaultKinds) choose(o metav1.Object) metav1.Object {
	switch o := o.(type) {
	case *antrea.NetworkPolicy: // it stays in its namespace, whose owner edits it
		k.keep(&o.Spec)
	case *antrea.ClusterNetworkPolicy:
		becomes, why := clusterPolicy(o)
		if why.reason == "" {
			why.reason = k.stays(&o.Spec, becomes.Spec.Tier)
		}
		if why.reason == "" {
			k.used[becomes.Spec.Tier]++
			return becomes
		}
		why.object = o.Name
		k.stay = append(k.stay, why)
		k.keep(&o.Spec)
	}
	return o
}

// stays returns the reason why a policy that a ClusterNetworkPolicy can say stays Antrea's, or "".
func (k *defaultKinds) stays(spec *antrea.PolicySpec, tier policyapi.Tier) string {
	switch {
	case k.others:
		return stayOthers
	case k.used[tier] >= mostPriorities:
		return stayPriority
	case tier == policyapi.AdminTier && (passesOther(spec.Ingress, k.ingress) || passesOther(spec.Egress, k.egress)):
		return stayOrder
	}
	return ""
}

// keep records the actions of a policy that stays Antrea's. In the tier baseline all drop, so that their order does not matter.
func (k *defaultKinds) keep(spec *antrea.PolicySpec) {
	if spec.Tier != "" {
		return
	}
	for _, r := range spec.Ingress {
		k.ingress[r.Action] = true
	}
	for _, r := range spec.Egress {
		k.egress[r.Action] = true
	}
}

// passesOther reports whether one of the rules has another action than one of the later ones.
func passesOther(rules []antrea.Rule, later map[antrea.Action]bool) bool {
	return slices.ContainsFunc(rules, func(r antrea.Rule) bool { return len(later) > 1 || len(later) == 1 && !later[r.Action] })
}

// stayNotes name the policies that stay Antrea's, by reason.
func stayNotes(all []misfit) (notes []string) {
	names := map[string][]string{}
	var reasons []string
	for _, m := range slices.Backward(all) {
		if names[m.reason] == nil {
			reasons = append(reasons, m.reason)
		}
		name := m.object
		if m.field != "" {
			name += " (" + m.field + ")"
		}
		names[m.reason] = append(names[m.reason], name)
	}
	for _, reason := range reasons {
		notes = append(notes, "Of Antrea's kind, because "+reason+": "+strings.Join(names[reason], ", "))
	}
	return notes
}

// clusterPolicy returns the ClusterNetworkPolicy of Kubernetes that says what one of Antrea's says, without its priority.
func clusterPolicy(o *antrea.ClusterNetworkPolicy) (*clusterNetworkPolicy, misfit) {
	out := &clusterNetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: policyapi.GroupVersion.String(), Kind: "ClusterNetworkPolicy"},
		ObjectMeta: o.ObjectMeta, Spec: policyapi.ClusterNetworkPolicySpec{Tier: policyapi.AdminTier},
	}
	spec := &out.Spec
	if o.Spec.Tier != "" {
		spec.Tier = policyapi.BaselineTier
	}
	if len(o.Spec.AppliedTo) != 1 {
		return nil, misfit{reason: staySubject}
	}
	of := o.Spec.AppliedTo[0]
	spec.Subject.Namespaces, spec.Subject.Pods = clusterPods(of.NamespaceSelector, of.PodSelector)
	for i, r := range o.Spec.Ingress {
		rule, reason := clusterRule(r, r.From)
		ingress := policyapi.ClusterNetworkPolicyIngressRule{Action: rule.Action, Protocols: rule.Protocols}
		for _, p := range rule.To {
			if len(p.Networks) > 0 {
				reason = stayIngress
			}
			ingress.From = append(ingress.From, policyapi.ClusterNetworkPolicyIngressPeer{Namespaces: p.Namespaces, Pods: p.Pods})
		}
		if reason != "" {
			return nil, misfit{field: fmt.Sprintf("spec.ingress[%d]", i), reason: reason}
		}
		spec.Ingress = append(spec.Ingress, ingress)
	}
	for i, r := range o.Spec.Egress {
		rule, reason := clusterRule(r, r.To)
		if reason != "" {
			return nil, misfit{field: fmt.Sprintf("spec.egress[%d]", i), reason: reason}
		}
		spec.Egress = append(spec.Egress, rule)
	}
	if max(len(spec.Ingress), len(spec.Egress)) > mostOfEach {
		return nil, misfit{reason: stayMany}
	}
	return out, misfit{}
}

// clusterRule returns a rule with the peers of either direction, or the reason why there is none.
func clusterRule(r antrea.Rule, peers []antrea.Peer) (out policyapi.ClusterNetworkPolicyEgressRule, reason string) {
	out.Action = policyapi.ClusterNetworkPolicyRuleActionAccept
	if r.Action == antrea.Drop {
		out.Action = policyapi.ClusterNetworkPolicyRuleActionDeny
	}
	var networks []policyapi.CIDR
	if len(peers) == 0 {
		networks = []policyapi.CIDR{"0.0.0.0/0", "::/0"}
	}
	for _, p := range peers {
		switch {
		case p.IPBlock == nil:
			namespaces, pods := clusterPods(p.NamespaceSelector, p.PodSelector)
			out.To = append(out.To, policyapi.ClusterNetworkPolicyEgressPeer{Namespaces: namespaces, Pods: pods})
		case len(p.IPBlock.Except) > 0:
			return out, stayExcept
		default:
			networks = append(networks, policyapi.CIDR(p.IPBlock.CIDR))
		}
	}
	slices.Sort(networks)
	for some := range slices.Chunk(slices.Compact(networks), mostOfEach) {
		out.To = append(out.To, policyapi.ClusterNetworkPolicyEgressPeer{Networks: some})
	}
	for _, p := range r.Ports {
		protocol, exact := clusterPort(p)
		if !exact {
			return out, stayPorts
		}
		out.Protocols = append(out.Protocols, protocol)
	}
	switch {
	case len(r.Protocols) > 0:
		return out, stayPorts
	case max(len(out.To), len(out.Protocols)) > mostOfEach:
		return out, stayMany
	}
	return out, ""
}

// clusterPods returns the selectors of pods in the form of the API: of all pods in namespaces, or of some.
func clusterPods(namespaces, pods *metav1.LabelSelector) (*metav1.LabelSelector, *policyapi.NamespacedPod) {
	if isEverything(pods) {
		return namespaces, nil
	}
	return nil, &policyapi.NamespacedPod{NamespaceSelector: *namespaces, PodSelector: *pods}
}

// clusterPort returns a port with a number or a range. A whole protocol is none, because it has a port 0 too; neither is a name,
// which would be for every protocol in which a pod has it.
func clusterPort(p antrea.Port) (out policyapi.ClusterNetworkPolicyProtocol, exact bool) {
	if p.Protocol == nil || p.Port == nil || p.Port.Type != intstr.Int {
		return out, false
	}
	port := &policyapi.Port{Number: p.Port.IntVal}
	if p.EndPort != nil {
		port = &policyapi.Port{Range: &policyapi.PortRange{Start: p.Port.IntVal, End: *p.EndPort}}
	}
	switch *p.Protocol {
	case corev1.ProtocolTCP:
		out.TCP = &policyapi.ClusterNetworkPolicyProtocolTCP{DestinationPort: port}
	case corev1.ProtocolUDP:
		out.UDP = &policyapi.ClusterNetworkPolicyProtocolUDP{DestinationPort: port}
	case corev1.ProtocolSCTP:
		out.SCTP = &policyapi.ClusterNetworkPolicyProtocolSCTP{DestinationPort: port}
	default:
		return out, false
	}
	return out, true
}
