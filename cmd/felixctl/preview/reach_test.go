package preview

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/truthtable"
)

// TestReachIsTrue asks who reaches whom in some steps of the truth tables: exactly one way has each probe, with the table's verdict.
func TestReachIsTrue(t *testing.T) {
	files, err := filepath.Glob("../../../test/truthtable/testdata/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatal("no truth tables", err)
	}
	allowed, denied := 0, 0
	for _, file := range files {
		steps, err := truthtable.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(steps); i += 7 {
			s := &steps[i]
			for _, family := range model.Families() {
				o := s.Objects(family)
				all, _, err := reach(t.Context(), control.Objects{Node: o.Nodes[0].Name, Nodes: o.Nodes, Namespaces: o.Namespaces, Pods: o.Pods, Policies: o.Policies, ClusterPolicies: o.ClusterPolicies, Antrea: o.Antrea}, Question{})
				if err != nil {
					t.Fatal(err)
				}
				for _, probe := range s.Probes {
					packet := oracle.Packet{Port: probe.Port, Source: address(t, s, probe.From, family), Destination: address(t, s, probe.To, family)}
					if packet.Protocol, err = model.ParseProtocol(probe.Protocol); err != nil {
						t.Fatal(err)
					}
					var ways []string
					for _, d := range all {
						if d.covers(s, probe, packet, family) {
							ways = append(ways, d.Becomes)
						}
					}
					switch {
					case probe.Expect == nil || probe.From == probe.To:
					case len(ways) != 1 || (ways[0] == Allowed) != *probe.Expect:
						t.Errorf("%s IPv%s: %s -> %s %s: ways %v, want allowed %v", s, family, probe.From, probe.To, packet, ways, *probe.Expect)
					case *probe.Expect:
						allowed++
					default:
						denied++
					}
				}
			}
		}
	}
	t.Logf("%d probes allowed, %d denied", allowed, denied)
	if allowed == 0 || denied == 0 {
		t.Error("the tables show nothing")
	}
}

// tenants are two namespaces with a pod each, of which one is closed to other tenants but for a port.
func tenants() control.Objects {
	pod := func(namespace, name, address string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
			Spec:       corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: address}}},
		}
	}
	namespace := func(name, tenant string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"tenant": tenant}}}
	}
	host := pod("red", "agent", "192.0.2.1")
	host.Spec.HostNetwork = true
	closed := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "own"}, Spec: networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{
			{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": "blue"}}}}},
		},
	}}
	return control.Objects{
		Node:       "n1",
		Nodes:      []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{PodCIDR: "10.0.0.0/24"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}}}},
		Namespaces: []*corev1.Namespace{namespace("red", "red"), namespace("blue", "blue")},
		Pods:       []*corev1.Pod{pod("red", "web", "10.0.0.2"), pod("blue", "web", "10.0.0.3"), pod("blue", "db", "10.0.0.4"), host},
		Policies:   []*networkingv1.NetworkPolicy{closed},
	}
}

// TestReachAnswers has the auditor's question and its neighbours.
func TestReachAnswers(t *testing.T) {
	for _, c := range []struct {
		from, to string
		port     model.PortRange
		passes   bool
		because  string
	}{
		{"pods:app=web,tier notin (x)", "blue/db", model.PortRange{}, true, "networkpolicy/blue/own ingress[0]"},
		{"red/web", "namespaces:tenant=blue", model.PortRange{}, false, "isolated by networkpolicy/blue/own"},
		{"blue/db", "node:n1", model.PortRange{Protocol: model.UDP, First: 6081, Last: 6081}, false, string(oracle.TunnelEnd)},
		// A pod in its host's network is its node.
		{"namespaces:tenant=red", "namespaces:tenant=blue", model.PortRange{}, true, "node n1"},
		{"namespaces:tenant=blue", "namespaces:tenant=red", model.PortRange{}, true, "no policy isolates"},
		{"outside", "namespace:blue", model.PortRange{Protocol: model.ICMP}, false, "isolated by networkpolicy/blue/own"},
		{"red/agent", "blue/db", model.PortRange{}, true, "no policy denies traffic between a pod and its own node"},
		{"203.0.113.0/24", "blue/db", model.PortRange{}, false, "203.0.113.0/24"},
		{"198.51.100.7", "red/web", model.PortRange{}, true, "198.51.100.7/32"},
		{"outside", "nodes", model.PortRange{}, true, "no policy isolates"},
		{"outside", "red/web", model.PortRange{Protocol: model.TCP, First: 80, Last: 80}, true, "no policy isolates"},
	} {
		r, err := ReachOf(t.Context(), tenants(), Question{From: c.from, To: c.to, Port: c.port})
		if err != nil {
			t.Errorf("%s to %s: %v", c.from, c.to, err)
			continue
		}
		text, _ := json.Marshal(r.Ways)
		if r.Passes() != c.passes || !strings.Contains(string(text), c.because) {
			t.Errorf("%s to %s: passes %v, want %v, because %s: %s", c.from, c.to, r.Passes(), c.passes, c.because, text)
		}
	}
}

// TestReachOfNobody: an end without a pod or node is an error, and no proof that nothing passes.
func TestReachOfNobody(t *testing.T) {
	for from, want := range map[string]string{
		"green/web":               "there is no such pod",
		"namespace:green":         "there is no such pod",
		"namespaces:tenant=green": "there is no such pod",
		"node:n2":                 "there is no such pod with an address, or node",
		"outside":                 "no policy applies between these ends: all packets pass",
		"pods:":                   "not a selector",
		"pods:a=b=c":              "not a selector",
		"web":                     "must be NAMESPACE/POD",
		"::/0":                    "there is no such pod", // of a cluster without IPv6
	} {
		if r, err := ReachOf(t.Context(), tenants(), Question{From: from, To: map[bool]string{true: "outside"}[from == "outside"]}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--from %s: %+v, %v, want %q", from, r, err, want)
		}
	}
}

// TestReachOfAddressesBetweenPods: addresses outside between the pods' are there, also if both ends of the prefix are pods'.
func TestReachOfAddressesBetweenPods(t *testing.T) {
	o := tenants()
	o.Nodes[0].Spec.PodCIDRs = []string{"10.0.0.0/24", "10.0.1.0/24", "10.128.0.0/9", "fd00::/16"}
	o.Nodes[0].Status.Addresses = append(o.Nodes[0].Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "10.0.2.0"})
	for from, text := range map[string]string{"10.0.0.0/8": "10.0.0.0/8", "10.0.0.0/24": ""} {
		r, err := ReachOf(t.Context(), o, Question{From: from, To: "red/web"})
		if text == "" && err == nil || text != "" && (err != nil || len(r.Ways) != 1 || r.Ways[0].From[0] != text || r.Ways[0].Verdict != Allowed) {
			t.Errorf("%s: %+v, %v", from, r, err)
		}
	}
}

// TestReachOfIsolatedNamespaces: an address is a pod's in whichever node's prefix it is.
func TestReachOfIsolatedNamespaces(t *testing.T) {
	o := tenants()
	other := o.Nodes[0].DeepCopy()
	other.Name, other.Spec.PodCIDR, other.Status.Addresses = "n2", "10.0.1.0/24", nil
	o.Nodes, o.Policies, o.Antrea.Isolation = append(o.Nodes, other), nil, true
	o.Pods[0].Status.PodIPs[0].IP = "10.0.1.2"
	for from, passes := range map[string]bool{"red/web": false, "blue/web": true, "node:n1": true, "outside": true} {
		if r, err := ReachOf(t.Context(), o, Question{From: from, To: "blue/db"}); err != nil || r.Passes() != passes {
			t.Errorf("%s: %+v, %v", from, r, err)
		}
	}
}

// TestReachWithoutAddress: a pod of the question without an address is named.
func TestReachWithoutAddress(t *testing.T) {
	o := tenants()
	o.Pods[2].Status.PodIPs = nil
	r, err := ReachOf(t.Context(), o, Question{From: "namespace:red", To: "namespace:blue"})
	if err != nil || strings.Join(r.NoAddress, " ") != "blue/db" {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestReachIsEvidence: equal objects have an equal digest, whichever agent gave them; a change of a label or a policy changes it.
func TestReachIsEvidence(t *testing.T) {
	digest := func(o control.Objects) string {
		t.Helper()
		e, err := EvidenceOf(o)
		if err != nil {
			t.Fatal(err)
		}
		return e.SHA256
	}
	first, other := tenants(), tenants()
	other.Node, other.Revision = "n2", 7
	if digest(first) != digest(other) {
		t.Error("the node of the agent changes the digest")
	}
	other.Pods[0].Labels["app"] = "api"
	if digest(first) == digest(other) {
		t.Error("a label does not change the digest")
	}
}
