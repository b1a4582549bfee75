package policy_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/model"
)

// hostPolicies returns the policies of the node that the updates of an engine make, in force after them.
func hostPolicies(t *testing.T, e *policy.Engine, before *model.HostPolicies) *model.HostPolicies {
	t.Helper()
	now := before
	for _, u := range e.Flush() {
		switch u := u.(type) {
		case model.HostPoliciesUpdate:
			now = u.Policies
		case model.PolicyUpdate:
			t.Errorf("policy %s goes to pods", u.Policy.ID)
		}
	}
	return now
}

// TestHostPolicies: the policies of this node are those whose nodeSelector matches its labels, in the order of tiers and priorities, with the
// groups of their rules. They follow the labels, are never policies of pods, and stay while the node's object is missing.
func TestHostPolicies(t *testing.T) {
	e := policy.New("here")
	cluster := antrea.KindClusterNetworkPolicy
	node := func(name, labels, address string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: newNamespace("x " + labels).Labels}, Spec: corev1.NodeSpec{PodCIDR: "10.0.0.0/24"}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
		return n
	}
	e.SetNamespace(newNamespace("x"))
	e.SetPod(newPod("x/web app=web", "10.0.0.2"))
	e.SetNode(node("there", "role=worker", "192.0.2.2"))
	e.SetAntrea(antreaObject(t, cluster, "second", "{priority: 2, appliedTo: [{nodeSelector: {matchLabels: {role: worker}}}], ingress: [{action: Drop, from: [{podSelector: {}}]}], egress: [{action: Allow}]}"))
	e.SetAntrea(antreaObject(t, cluster, "first", "{priority: 1, appliedTo: [{nodeSelector: {}}], ingress: [{action: Pass, ports: [{port: 80, endPort: 90}]}]}"))
	e.SetAntrea(antreaObject(t, cluster, "last", "{tier: baseline, priority: 1, appliedTo: [{nodeSelector: {}}], egress: [{action: Reject, to: [{nodeSelector: {}}]}]}"))
	text := func(h *model.HostPolicies) string {
		if h == nil {
			return "none"
		}
		var all []string
		for _, d := range model.Directions() {
			all = append(all, fmt.Sprintf("%s%v%v", d, h.Applied(d).Admin, h.Applied(d).Baseline))
		}
		for _, g := range h.Groups {
			all = append(all, fmt.Sprint(g.Members))
		}
		return strings.Join(all, " ")
	}
	var now *model.HostPolicies
	expect := func(when, want string) {
		t.Helper()
		now = hostPolicies(t, e, now)
		if got := text(now); got != want {
			t.Errorf("%s: got  %s\nwant %s", when, got, want)
		}
	}
	expect("before the node is known", "none")
	e.SetNode(node("here", "role=control", "192.0.2.1"))
	expect("other labels", "ingress[clusternetworkpolicy.crd.antrea.io/first][] egress[][clusternetworkpolicy.crd.antrea.io/last] [192.0.2.1 192.0.2.2]")
	e.SetNode(node("here", "role=worker", "192.0.2.1"))
	const all = "ingress[clusternetworkpolicy.crd.antrea.io/first clusternetworkpolicy.crd.antrea.io/second][] egress[clusternetworkpolicy.crd.antrea.io/second][clusternetworkpolicy.crd.antrea.io/last] [192.0.2.1 192.0.2.2] [10.0.0.2]"
	expect("its labels", all)
	e.SetPod(newPod("x/other", "10.0.0.3"))
	before := now
	if expect("another pod", all); now != before {
		t.Error("members of groups are no change of the lists")
	}
	found := false
	for _, u := range e.Snapshot() {
		if u, is := u.(model.HostPoliciesUpdate); is {
			found = strings.HasSuffix(text(u.Policies), "[10.0.0.2 10.0.0.3]")
		}
	}
	if !found {
		t.Error("a client that begins now gets old members, or none")
	}
	e.DeleteNode("here")
	expect("without its object", all)
	e.SetAntrea(antreaObject(t, cluster, "second", "{priority: 0.5, appliedTo: [{nodeSelector: {}}], ingress: [{action: Allow}, {action: Drop}]}"))
	if expect("a priority that is not valid", "ingress[clusternetworkpolicy.crd.antrea.io/second clusternetworkpolicy.crd.antrea.io/first][] egress[][clusternetworkpolicy.crd.antrea.io/last] [192.0.2.2]"); len(now.Policies) != 3 || now.Policies[1].ID.Name == "" {
		t.Errorf("policies %v", now.Policies)
	}
	for _, name := range []string{"first", "second", "last"} {
		e.DeleteAntrea(antrea.ID{Kind: cluster, Name: name})
	}
	if expect("without policies", "ingress[][] egress[][]"); !now.Empty() || len(e.Snapshot()) > 1+2 {
		t.Errorf("left: %v", e.Snapshot())
	}
}

// TestHostPolicyBecomesOneOfPods: a policy that is edited from nodes to pods, and back, is in force for one kind at a time.
func TestHostPolicyBecomesOneOfPods(t *testing.T) {
	e := policy.New("here")
	e.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here"}})
	e.SetNamespace(newNamespace("x"))
	e.SetPod(newPod("x/web app=web", "10.0.0.2"))
	for i, to := range []string{"nodeSelector", "podSelector", "nodeSelector"} {
		e.SetAntrea(antreaObject(t, antrea.KindClusterNetworkPolicy, "p", "{priority: 1, appliedTo: [{"+to+": {}}], ingress: [{action: Drop}]}"))
		var got []string
		for _, u := range e.Flush() {
			switch u := u.(type) {
			case model.HostPoliciesUpdate:
				got = append(got, fmt.Sprint("node", len(u.Policies.Policies)))
			case model.PolicyUpdate:
				got = append(got, "pods")
			case model.PolicyRemove:
				got = append(got, "no pods")
			}
		}
		if want := []string{"node1", "pods node0", "node1 no pods"}[i]; strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", to, got, want)
		}
	}
}

// TestPreDNATPolicies: a policy that is edited to be judged before DNAT, and back, is in one list at a time, and identifies other policies of the node.
func TestPreDNATPolicies(t *testing.T) {
	e := policy.New("here")
	e.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here"}})
	e.SetNamespace(newNamespace("x"))
	e.SetPod(newPod("x/web app=web", "10.0.0.2"))
	e.SetAntrea(antreaObject(t, antrea.KindClusterNetworkPolicy, "in", "{priority: 1, appliedTo: [{nodeSelector: {}}], ingress: [{action: Drop}]}"))
	fingerprints := map[string]bool{}
	var now *model.HostPolicies
	for i, value := range []string{"true", "false", "true", "on"} {
		for j, name := range []string{"first", "last"} {
			spec := []string{"{priority: 2, appliedTo: [{nodeSelector: {}}], ingress: [{action: Allow, from: [{podSelector: {}}]}]}", "{tier: baseline, priority: 1, appliedTo: [{nodeSelector: {}}], ingress: [{action: Drop}]}"}[j]
			o := antreaObject(t, antrea.KindClusterNetworkPolicy, name, spec)
			o.SetAnnotations(map[string]string{model.PreDNATAnnotation: value})
			e.SetAntrea(o)
		}
		now = hostPolicies(t, e, now)
		fingerprints[now.Fingerprint()] = true
		want := []string{
			"in[clusternetworkpolicy.crd.antrea.io/in][] pre[clusternetworkpolicy.crd.antrea.io/first][clusternetworkpolicy.crd.antrea.io/last] groups1", "in[clusternetworkpolicy.crd.antrea.io/in clusternetworkpolicy.crd.antrea.io/first][clusternetworkpolicy.crd.antrea.io/last] pre[][] groups1",
			"in[clusternetworkpolicy.crd.antrea.io/in][] pre[clusternetworkpolicy.crd.antrea.io/first][clusternetworkpolicy.crd.antrea.io/last] groups1", "in[clusternetworkpolicy.crd.antrea.io/in][] pre[][] groups0",
		}[i]
		if got := fmt.Sprintf("in%v%v pre%v%v groups%d", now.Ingress.Admin, now.Ingress.Baseline, now.PreDNAT.Admin, now.PreDNAT.Baseline, len(now.Groups)); got != want {
			t.Errorf("%q: got  %s\nwant %s", value, got, want)
		}
	}
	if len(fingerprints) != 3 {
		t.Errorf("%d fingerprints for 3 kinds of policies", len(fingerprints))
	}
	e.DeleteAntrea(antrea.ID{Kind: antrea.KindClusterNetworkPolicy, Name: "in"})
	o := antreaObject(t, antrea.KindClusterNetworkPolicy, "first", "{priority: 2, appliedTo: [{nodeSelector: {}}], ingress: [{action: Drop}]}")
	o.SetAnnotations(map[string]string{model.PreDNATAnnotation: "true"})
	e.SetAntrea(o)
	if now = hostPolicies(t, e, now); now.Empty() || now.Fingerprint() == "" {
		t.Error("with a policy before DNAT alone, the node has none")
	}
}
