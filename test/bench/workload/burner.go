package workload

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

// Burner is the network-policy workload of kube-burner (kube-burner-ocp, cmd/config/network-policy), with its option for
// exceptions: each policy is for all pods of its namespace and for one direction. It allows
//
//	5 pods of each of 5 namespaces, at 5 ports and 5 ranges of ports
//	5 blocks (/16) without 5 /24 each, at 5 other ports and the same ranges: a rule each
//
// No two policies allow the same pods; the i-th policies of all namespaces allow the same blocks.
type Burner struct {
	// Namespaces have PodsPerNamespace pods and Policies policies each, half of them for ingress. Pods are on Nodes nodes
	// in turn, the first on Node.
	Namespaces, PodsPerNamespace, Policies, Nodes int
}

// KubeBurner is the load of issue kube-burner/kube-burner#671: 240 namespaces, 2,400 pods, 4,800 policies, 100 pods a node.
func KubeBurner() Burner { return Burner{240, 10, 20, 24} }

// burnerEach is the number of each kind of thing that a policy names.
const burnerEach = 5

// Cluster returns everything but the policies.
func (b Burner) Cluster() []datastore.Event {
	events := []datastore.Event{datastore.NodeSet{Node: node(Node, "192.168.50.10", "10.10.0.0/20")}}
	for i := 1; i < b.Nodes; i++ {
		events = append(events, datastore.NodeSet{Node: node(peerNode(i), peerNodeAddress(i).String(), peerCIDR(i).String())})
	}
	for i := range b.Namespaces {
		n := namespace(burnerNamespace(i), "burner")
		n.Labels[corev1.LabelMetadataName] = n.Name
		events = append(events, datastore.NamespaceSet{Namespace: n})
	}
	for i := range b.Namespaces * b.PodsPerNamespace {
		events = append(events, datastore.PodSet{Pod: b.pod(i)})
	}
	return events
}

// Attachments returns the attachment of every pod of this node.
func (b Burner) Attachments() []model.Attachment {
	var all []model.Attachment
	for i := 0; i < b.Namespaces*b.PodsPerNamespace; i += b.Nodes {
		all = append(all, attachment(b.pod(i), i/b.Nodes))
	}
	return all
}

// AllPolicies returns all policies.
func (b Burner) AllPolicies() []datastore.Event {
	var all []datastore.Event
	for i := range b.Namespaces * b.Policies {
		all = append(all, datastore.NetworkPolicySet{Policy: b.Policy(i)})
	}
	return all
}

// LaterChange returns a policy that this node has pods of, and the same with another port in its first rule.
func (b Burner) LaterChange(i int) (before, changed *networkingv1.NetworkPolicy) {
	at := i * b.Nodes / b.PodsPerNamespace % b.Namespaces
	before, changed = b.Policy(at*b.Policies+i%b.Policies), b.Policy(at*b.Policies+i%b.Policies)
	number := intstr.FromInt32(9000)
	if len(changed.Spec.Ingress) > 0 {
		changed.Spec.Ingress[0].Ports[0].Port = &number
	} else {
		changed.Spec.Egress[0].Ports[0].Port = &number
	}
	return before, changed
}

// LaterPod returns a new pod of another node, which rules of this node's policies allow.
func (b Burner) LaterPod(i int) *corev1.Pod {
	p := b.pod(b.Namespaces*b.PodsPerNamespace + i*b.Nodes + 1)
	p.Namespace, p.Labels["num"] = burnerNamespace(i%b.Namespaces), "1"
	return p
}

// Policy returns a policy; those with even numbers are for ingress.
func (b Burner) Policy(i int) *networkingv1.NetworkPolicy {
	in, replica := i/b.Policies, i%b.Policies/2
	p := Policy(burnerNamespace(in), fmt.Sprintf("policy-%d", i%b.Policies))
	p.Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{among("num", b.PodsPerNamespace, func(n int) string { return fmt.Sprint(n + 1) })}
	first := (in*b.Policies/2+replica)*burnerEach + 1
	peers := []networkingv1.NetworkPolicyPeer{{
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			among(corev1.LabelMetadataName, burnerEach, func(n int) string { return burnerNamespace((first + n) % b.Namespaces) }),
		}},
		PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{among("num", burnerEach, func(n int) string { return fmt.Sprint(n + 1) })}},
	}}
	add := func(peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) {
		if i%2 == 0 {
			p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
			p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: peers, Ports: ports})
		} else {
			p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
			p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: peers, Ports: ports})
		}
	}
	add(peers, burnerPorts(8080))
	for n := range burnerEach {
		block := &networkingv1.IPBlock{CIDR: burnerBlock(replica*burnerEach+n, 0, 16)}
		for k := range burnerEach {
			block.Except = append(block.Except, burnerBlock(replica*burnerEach+n, k, 24))
		}
		add([]networkingv1.NetworkPolicyPeer{{IPBlock: block}}, burnerPorts(1001))
	}
	return p
}

func burnerNamespace(i int) string { return fmt.Sprintf("network-policy-perf-%d", i) }

func burnerBlock(i, k, bits int) string {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{11 + byte(i>>8), byte(i), byte(k), 0}), bits).String()
}

// burnerPorts are single ports from the first on, and ranges of six ports.
func burnerPorts(first int) []networkingv1.NetworkPolicyPort {
	var all []networkingv1.NetworkPolicyPort
	for n := range burnerEach {
		all = append(all, port(first+n))
	}
	for n := range burnerEach {
		ports, end := port(5000+10*n), int32(5005+10*n)
		ports.EndPort = &end
		all = append(all, ports)
	}
	return all
}

// among selects the first values of a label.
func among(key string, count int, value func(int) string) metav1.LabelSelectorRequirement {
	r := metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn}
	for n := range count {
		r.Values = append(r.Values, value(n))
	}
	return r
}

func (b Burner) pod(i int) *corev1.Pod {
	at, on, address := i%b.Nodes, Node, endpointAddress(i/b.Nodes)
	if at > 0 {
		on, address = peerNode(at), nth(peerCIDR(at), 2+i/b.Nodes)
	}
	return pod(burnerNamespace(i/b.PodsPerNamespace%b.Namespaces), fmt.Sprintf("pod-%d", i), on, address, map[string]string{"num": fmt.Sprint(i%b.PodsPerNamespace + 1)})
}
