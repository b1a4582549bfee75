package workloads

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/felixlike/felixlike/felixlike/policy/oracle"
)

// seed is the seed of all names and placements.
const seed = 20200717

// nodeCount is the number of nodes that Antrea's benchmarks spread pods over.
const nodeCount = 1000

// hostsPerNode is the number of pod addresses in a node's /24, from the tenth on.
const hostsPerNode = 240

// builder makes the objects of a cluster.
type builder struct {
	placement Placement
	random    *rand.Rand
	cluster   oracle.Cluster
	// used counts the addresses of each node that are taken.
	used [nodeCount]int
}

func newBuilder(p Placement) *builder {
	return &builder{placement: p, random: rand.New(rand.NewPCG(seed, 0))}
}

// name returns a new name that begins with the prefix.
func (b *builder) name(prefix string) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	name := []byte(prefix)
	for range 8 {
		name = append(name, letters[b.random.IntN(len(letters))])
	}
	return string(name)
}

func (b *builder) uid() types.UID {
	return types.UID(fmt.Sprintf("%016x-%016x", b.random.Uint64(), b.random.Uint64()))
}

func (b *builder) namespace(name string, labels map[string]string) {
	b.cluster.Namespaces = append(b.cluster.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
}

// single returns the only namespace of the cluster, and makes it first.
func (b *builder) single() string {
	if len(b.cluster.Namespaces) == 0 {
		name := b.name("")
		b.namespace(name, map[string]string{"app": name})
	}
	return b.cluster.Namespaces[0].Name
}

// pod makes a pod with a new label map, on a random node.
func (b *builder) pod(namespace, name string, labels map[string]string) {
	node := b.random.IntN(nodeCount)
	for b.used[node] == hostsPerNode {
		node = (node + 1) % nodeCount
	}
	address := netip.AddrFrom4([4]byte{10, byte(node / 250), byte(node % 250), byte(10 + b.used[node])}).String()
	b.used[node]++
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: b.uid(), Labels: clone(labels)},
		Spec:       corev1.PodSpec{NodeName: LocalNode},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}},
	}
	if b.placement == OneNode {
		p.Spec.NodeName = fmt.Sprintf("node-%d", node)
	}
	b.cluster.Pods = append(b.cluster.Pods, p)
}

// policy makes a policy that isolates both directions. Unless peers is nil it
// lets in the pods with these labels, in its own namespace or in those with
// the labels of namespaces.
func (b *builder) policy(namespace, name string, pods, peers, namespaces map[string]string) {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: b.uid()}}
	p.Spec.PodSelector.MatchLabels = clone(pods)
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	if peers != nil {
		peer := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: clone(peers)}}
		if namespaces != nil {
			peer.NamespaceSelector = &metav1.LabelSelector{MatchLabels: clone(namespaces)}
		}
		p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{peer}}}
	}
	b.cluster.Policies = append(b.cluster.Policies, p)
}

// clone copies labels with keys and values, because no two objects share them
// that come from an API server or from files.
func clone(labels map[string]string) map[string]string {
	if labels == nil {
		return nil
	}
	c := make(map[string]string, len(labels))
	for k, v := range labels {
		c[string([]byte(k))] = string([]byte(v))
	}
	return c
}
