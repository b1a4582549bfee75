package policy_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/policytest"
)

// networkPolicy builds a networkpolicy/x/p from the YAML of its spec.
func networkPolicy(t testing.TB, spec string) *networkingv1.NetworkPolicy {
	t.Helper()
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "p"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

// newPod builds a running pod of node "here" from "namespace/name key=value
// ...", its addresses, and ports as "name=number/protocol".
func newPod(words string, addresses ...string) *corev1.Pod {
	fields := strings.Fields(words)
	namespace, name, _ := strings.Cut(fields[0], "/")
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{}},
		Spec:       corev1.PodSpec{NodeName: "here", Containers: []corev1.Container{{Name: "c"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, l := range fields[1:] {
		key, value, _ := strings.Cut(l, "=")
		p.Labels[key] = value
	}
	for _, a := range addresses {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
	}
	return p
}

func withPort(p *corev1.Pod, name string, number int32, protocol corev1.Protocol) *corev1.Pod {
	c := &p.Spec.Containers[0]
	c.Ports = append(c.Ports, corev1.ContainerPort{Name: name, ContainerPort: number, Protocol: protocol})
	return p
}

func onNode(p *corev1.Pod, name string) *corev1.Pod {
	p.Spec.NodeName = name
	return p
}

func newNamespace(words string) *corev1.Namespace {
	fields := strings.Fields(words)
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fields[0], Labels: map[string]string{}}}
	for _, l := range fields[1:] {
		key, value, _ := strings.Cut(l, "=")
		n.Labels[key] = value
	}
	return n
}

// state is an engine of node "here" with the model that its updates come to.
type state struct {
	testing.TB
	*policy.Engine
	model *policytest.Model
}

func newState(t testing.TB) *state {
	return &state{TB: t, Engine: policy.New("here"), model: policytest.NewModel()}
}

// flush applies what Flush returns and returns it as text, one update a line.
func (s *state) flush() string {
	s.Helper()
	updates := s.Flush()
	if err := s.model.Apply(updates); err != nil {
		s.Fatal(err)
	}
	var lines []string
	for _, u := range updates {
		lines = append(lines, describe(u))
	}
	return strings.Join(lines, "\n")
}

// describe writes an update without group identifiers, which are hashes.
func describe(u model.Update) string {
	switch u := u.(type) {
	case model.GroupUpdate:
		return fmt.Sprintf("group %q +%v -%v", u.Group.Description, u.Added, u.Removed)
	case model.GroupRemove:
		return "group removed"
	case model.PolicyUpdate:
		return fmt.Sprintf("policy %s %d ingress %d egress", u.Policy.ID, len(u.Policy.Ingress), len(u.Policy.Egress))
	case model.PolicyRemove:
		return fmt.Sprintf("policy %s removed", u.ID)
	case model.EndpointUpdate:
		return fmt.Sprintf("endpoint %s ingress %v egress %v", u.Endpoint.ID, u.Endpoint.Ingress.NetworkPolicies, u.Endpoint.Egress.NetworkPolicies)
	case model.EndpointRemove:
		return fmt.Sprintf("endpoint %s removed", u.ID)
	case model.EgressesUpdate:
		var lines []string
		for _, e := range u.Egresses {
			lines = append(lines, fmt.Sprintf("egress %s %v at %q, assigned %v, of %v", e.Object.Name, e.Address, e.Node, e.Assigned, e.Pods))
		}
		return strings.Join(lines, "\n")
	case model.NodeUpdate:
		return fmt.Sprintf("node %s %v %v", u.Node.Name, u.Node.Addresses, u.Node.PodCIDRs)
	case model.NodeRemove:
		return fmt.Sprintf("node %s removed", u.Name)
	}
	return fmt.Sprintf("%T", u)
}

// rules writes a policy's rules of the model with groups by description.
func (s *state) rules(d model.Direction) string {
	var lines []string
	id := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "x", Name: "p"}
	p := s.model.Policies[id]
	if p == nil {
		return "no policy"
	}
	names := func(ids []model.GroupID) string {
		var all []string
		for _, id := range ids {
			all = append(all, s.model.Groups[id].Description)
		}
		return strings.Join(all, "; ")
	}
	for _, r := range p.Rules(d) {
		peers, ports := "any", "any"
		if !r.AnyPeer {
			peers = names(r.Peers)
		}
		if !r.AnyPort {
			ports = fmt.Sprintf("%v %s", r.Ports, names(r.NamedPorts))
		}
		lines = append(lines, fmt.Sprintf("%s | %s | %s", r.Name, peers, strings.TrimSpace(ports)))
	}
	return strings.Join(lines, "\n")
}

func equal(t testing.TB, what, got, want string) {
	t.Helper()
	if want = strings.TrimSpace(want); got != want {
		t.Errorf("%s:\n%s\nwant:\n%s", what, got, want)
	}
}
