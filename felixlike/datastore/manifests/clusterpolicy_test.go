package manifests

import (
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

const clusterPolicyYAML = `apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: p}
spec:
  tier: Admin
  priority: 5
  subject: {namespaces: {}}
  ingress:
  - action: Accept
    from: [{namespaces: {matchLabels: {a: b}}}]
  egress:
  - action: Deny
    to: [{networks: [192.0.2.0/24]}]
    protocols: [{tcp: {destinationPort: {range: {start: 1, end: 9}}}}]
`

func (h *harness) clusterPolicy() *v1alpha2.ClusterNetworkPolicy {
	p, _ := h.object("clusternetworkpolicy/p").(*v1alpha2.ClusterNetworkPolicy)
	return p
}

func TestClusterNetworkPolicy(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "a.yaml", clusterPolicyYAML)
	h := start(t, dir, time.Hour)
	h.sync()
	h.wantProblems()
	p := h.clusterPolicy()
	if p == nil || p.Spec.Tier != v1alpha2.AdminTier || p.Spec.Priority != 5 || len(p.Spec.Ingress[0].From) != 1 || p.Spec.Egress[0].Protocols[0].TCP.DestinationPort.Range.End != 9 {
		t.Fatalf("policy: %+v", p)
	}
	// An error later leaves the last good version in force.
	writeFile(t, dir, "a.yaml", strings.Replace(clusterPolicyYAML, "range", "rang", 1))
	h.sync()
	h.wantProblems("a.yaml: clusternetworkpolicy/p: spec.egress[0].protocols[0].tcp.destinationPort.rang: unknown field; the last good version stays in force")
	if h.clusterPolicy() != p {
		t.Errorf("policy: %+v", h.clusterPolicy())
	}
	h.remove("a.yaml")
	h.sync()
	if h.clusterPolicy() != nil {
		t.Error("the policy is there without a file")
	}
}

// TestClusterNetworkPolicyErrors: the parts that are not understood fail closed, if there was no good version
// before.
func TestClusterNetworkPolicyErrors(t *testing.T) {
	tests := []struct {
		name, old, new, problem string
		ingress, egress         int
	}{
		{"rule", "to: [{networks", "to: [{network", "spec.egress[0].to[0].network: unknown field; fails closed", 1, 0},
		{"type", "from: [{namespaces: {matchLabels: {a: b}}}]", "from: all", "spec.ingress.from: wrong type: got string, want a list; fails closed", 0, 1},
		{"spec", "tier: Admin", "tier: Admin\n  order: 7", "spec.order: unknown field; fails closed", 0, 0},
		{"direction", "egress:", "egres:", "spec.egres: unknown field; fails closed", 0, 0},
		{"direction twice", "ingress:", "egress:", `key "egress" already set in map; fails closed`, 0, 0},
		{"version", "/v1alpha2", "/v1alpha1", `apiVersion: "policy.networking.k8s.io/v1alpha1": must be policy.networking.k8s.io/v1alpha2; fails closed`, 0, 0},
		{"required in a peer", "from: [{namespaces: {matchLabels: {a: b}}}]", "from: [{pods: {}}]", "spec.ingress[0].from[0].pods.podSelector: required; fails closed", 0, 1},
		{"given twice", "priority: 5", "priority: 5\n  priority: 6", `key "priority" already set in map; fails closed`, 0, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			writeFile(t, dir, "good.yaml", podYAML("good", "pod"))
			writeFile(t, dir, "bad.yaml", strings.Replace(clusterPolicyYAML, test.old, test.new, 1))
			h := start(t, dir, time.Hour)
			h.sync()
			h.wantProblems(test.problem)
			if h.object("pod/good/pod") == nil {
				t.Error("the good pod is not in force")
			}
			p := h.clusterPolicy()
			if p == nil || len(p.Spec.Ingress) != 1 || len(p.Spec.Egress) != 1 {
				t.Fatalf("policy: %+v", p)
			}
			if in, out := len(p.Spec.Ingress[0].From), len(p.Spec.Egress[0].To); in != test.ingress || out != test.egress {
				t.Errorf("peers: %d ingress, %d egress; want %d, %d", in, out, test.ingress, test.egress)
			}
			// A repair replaces it, and so does another error.
			writeFile(t, dir, "bad.yaml", clusterPolicyYAML)
			h.sync()
			h.wantProblems()
		})
	}
}

// TestStagedWithFaults: a staged policy that is not understood is left out, so it closes nothing.
func TestStagedWithFaults(t *testing.T) {
	dir := t.TempDir()
	const staged = "annotations: {felixlike.io/enforce: \"no\"}"
	writeFile(t, dir, "a.yaml", strings.NewReplacer("metadata: {", "metadata: {"+staged+", ", "tier: Admin", "tier: Admin\n  order: 7").Replace(clusterPolicyYAML))
	writeFile(t, dir, "b.yaml", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: x, name: p, "+staged+"}\nspec: {podSelector: {}, order: 7}\n")
	writeFile(t, dir, "c.yaml", "apiVersion: crd.antrea.io/v1beta1\nkind: NetworkPolicy\nmetadata: {namespace: x, name: p, "+staged+"}\nspec: {priority: 5, appliedTo: [{podSelector: {}}], order: 7}\n")
	h := start(t, dir, time.Hour)
	h.sync()
	const left = "spec.order: unknown field; left out: it is staged, and no connection is evaluated by it"
	h.wantProblems("a.yaml: clusternetworkpolicy/p: "+left, "b.yaml: networkpolicy/x/p: "+left, "c.yaml: networkpolicy.crd.antrea.io/x/p: "+left)
	if p := h.clusterPolicy(); p != nil {
		t.Errorf("policy: %+v", p)
	}
	h.wantNames()
}

// TestClusterNetworkPolicyWithoutRequired: a policy without priority is not the strongest one, and one without
// the pods of its subject does not apply to all pods. The policy engine closes both values.
func TestClusterNetworkPolicyWithoutRequired(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "a.yaml", strings.Replace(clusterPolicyYAML, "  priority: 5\n", "", 1))
	h := start(t, dir, time.Hour)
	h.sync()
	h.wantProblems("a.yaml: clusternetworkpolicy/p: spec.priority: required; fails closed")
	if p := h.clusterPolicy(); p == nil || p.Spec.Priority >= 0 || p.Spec.Subject.Namespaces == nil {
		t.Errorf("policy: %+v", p)
	}
	h.remove("a.yaml")
	writeFile(t, dir, "b.yaml", strings.Replace(clusterPolicyYAML, "subject: {namespaces: {}}", "subject: {pods: {}}", 1))
	h.sync()
	h.wantProblems("b.yaml: clusternetworkpolicy/p: spec.subject.pods.podSelector: required; fails closed")
	if p := h.clusterPolicy(); p == nil || p.Spec.Subject.Pods != nil || p.Spec.Priority != 5 {
		t.Errorf("policy: %+v", p)
	}
}

func TestKindsBeforeClusterNetworkPolicy(t *testing.T) {
	for kind, tier := range map[string]string{"AdminNetworkPolicy": "Admin", "BaselineAdminNetworkPolicy": "Baseline"} {
		dir := t.TempDir()
		writeFile(t, dir, "a.yaml", "apiVersion: policy.networking.k8s.io/v1alpha1\nkind: "+kind+"\nmetadata: {name: old}\n")
		h := start(t, dir, time.Hour)
		h.sync()
		h.wantProblems("a.yaml: " + strings.ToLower(kind) + "/old: kind: " + kind + " is not supported: write a ClusterNetworkPolicy of policy.networking.k8s.io/v1alpha2 with tier: " + tier + ", as felixctl migrate does")
	}
}
