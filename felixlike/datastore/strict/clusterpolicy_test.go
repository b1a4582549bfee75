package strict

import (
	"testing"

	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// TestClosedSpecOfGarbage: what is no policy at all has no rules, and nothing fails.
func TestClosedSpecOfGarbage(t *testing.T) {
	for _, text := range []string{``, `null`, `[]`, `{"spec":7}`, `{"spec":{}}`, `{"spec":null}`} {
		if spec := ClosedSpec([]byte(text)); len(spec.Ingress)+len(spec.Egress) > 0 {
			t.Errorf("%s: %+v", text, spec)
		}
	}
}

// TestClosedSpecKeepsTheRest: one bad rule leaves the others as they are.
func TestClosedSpecKeepsTheRest(t *testing.T) {
	spec := ClosedSpec([]byte(`{"spec":{"tier":"Baseline","priority":3,"subject":{"namespaces":{}},
		"egress":[{"action":"Accept","to":[{"namespaces":{}}]},{"action":"Deny","to":[{"new":{}}]},7,{"action":7}]}}`))
	if spec.Tier != v1alpha2.BaselineTier || spec.Priority != 3 || spec.Subject.Namespaces == nil || len(spec.Egress) != 4 {
		t.Fatalf("spec: %+v", spec)
	}
	for i, want := range []struct {
		action v1alpha2.ClusterNetworkPolicyRuleAction
		peers  int
	}{{"Accept", 1}, {"Deny", 0}, {"", 0}, {"", 0}} {
		if got := spec.Egress[i]; got.Action != want.action || len(got.To) != want.peers {
			t.Errorf("rule %d: %+v", i, got)
		}
	}
}
