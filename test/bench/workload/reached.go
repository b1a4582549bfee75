package workload

import (
	"encoding/json"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reached are the policies that packets meet on their way from a client to a
// server, two pods of one namespace, and the pods that the rule which lets them
// through allows besides the client.
type Reached struct {
	Point
	Namespace string
	// Server and Client are labels of the two, AllowedLabel one that the client has
	// like all pods that the last rule allows.
	Server, Client map[string]string
	// Port is the server's.
	Port int
}

// RulesPerReachedPolicy is the number of rules in each of the policies.
const RulesPerReachedPolicy = 10

// AllowedLabel is the label of the pods that the last rule allows.
func AllowedLabel() (key, value string) { return "bench-group", "allowed" }

// Policies returns the policies, in the order of their names. All rules but
// the last one name other peers on the port, or the client on other ports.
func (r Reached) Policies() []*networkingv1.NetworkPolicy {
	var all []*networkingv1.NetworkPolicy
	for i := range r.Point.Policies {
		p := r.Policy(fmt.Sprintf("policy-%05d", i))
		for j := range RulesPerReachedPolicy {
			p.Spec.Ingress = append(p.Spec.Ingress, r.rule(i, j))
		}
		all = append(all, p)
	}
	return all
}

// Policy returns one that isolates the server, without rules.
func (r Reached) Policy(name string) *networkingv1.NetworkPolicy {
	p := Policy(r.Namespace, name)
	p.Spec.PodSelector.MatchLabels = r.Server
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	return p
}

// rule is the j-th of the i-th policy.
func (r Reached) rule(i, j int) networkingv1.NetworkPolicyIngressRule {
	others := networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: fmt.Sprintf("10.%d.%d.0/24", 100+i%100, j)}}
	peer, number := others, r.Port
	switch key, value := AllowedLabel(); {
	case i == r.Point.Policies-1 && j == RulesPerReachedPolicy-1:
		peer = podsWith(map[string]string{key: value})
	case j%2 == 1:
		peer, number = podsWith(r.Client), 10000+RulesPerReachedPolicy*(i%5000)+j
	}
	return networkingv1.NetworkPolicyIngressRule{
		From: []networkingv1.NetworkPolicyPeer{peer}, Ports: []networkingv1.NetworkPolicyPort{port(number)},
	}
}

func podsWith(labels map[string]string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: labels}}
}

// Others returns the pods, all of them on another node, that are allowed besides the client.
func (r Reached) Others() []*corev1.Pod {
	key, value := AllowedLabel()
	var all []*corev1.Pod
	for i := range max(0, r.Peers-1) {
		address := nth(netip.MustParsePrefix("172.16.0.0/12"), 2+i)
		all = append(all, pod(r.Namespace, fmt.Sprintf("other-%05d", i), "elsewhere", address, map[string]string{key: value}))
	}
	return all
}

// Files returns policies and pods as the manifests datastore reads them, by file
// name.
func (r Reached) Files() (map[string][]byte, error) {
	files := map[string][]byte{}
	add := func(kind string, i int, object any) error {
		text, err := json.Marshal(object) // JSON is YAML
		if err != nil {
			return fmt.Errorf("write manifests: %w", err)
		}
		name := fmt.Sprintf("%s-%05d.yaml", kind, i/documentsPerFile)
		files[name] = append(append(files[name], text...), "\n---\n"...)
		return nil
	}
	for i, p := range r.Policies() {
		if err := add("policies", i, p); err != nil {
			return nil, err
		}
	}
	for i, p := range r.Others() {
		if err := add("others", i, p); err != nil {
			return nil, err
		}
	}
	return files, nil
}
