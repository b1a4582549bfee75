package strict

import (
	"encoding/json"
	"testing"

	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// TestClosedSpecOfGarbage: garbage gives a policy without rules, and no failure.
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

// TestClosedSpecOfMisspeltDirection: a field that is not known, in the spec or beside it,
// may be a direction. The policy denies everything to its subject, in both directions.
func TestClosedSpecOfMisspeltDirection(t *testing.T) {
	const rules = `[{"action":"Deny","to":[{"networks":["192.0.2.0/24"]}]}]`
	const head = `"spec":{"tier":"Baseline","priority":3,"subject":{"namespaces":{"matchLabels":{"a":"b"}}}`
	for _, text := range []string{
		`{` + head + `,"egres":` + rules + `}}`,
		`{` + head + `},"egress":` + rules + `}`,
		`{` + head + `,"Egress":` + rules + `,"ingress":[{"action":"Accept","from":[{"namespaces":{}}]}]}}`,
	} {
		spec := ClosedSpec([]byte(text))
		if spec.Tier != v1alpha2.BaselineTier || spec.Priority != 3 || spec.Subject.Namespaces.MatchLabels["a"] != "b" {
			t.Errorf("%s: head: %+v", text, spec)
		}
		if len(spec.Ingress) != 1 || len(spec.Egress) != 1 {
			t.Errorf("%s: %d ingress rules, %d egress rules", text, len(spec.Ingress), len(spec.Egress))
			continue
		}
		if in, out := spec.Ingress[0], spec.Egress[0]; in.Action != "" || len(in.From) > 0 || out.Action != "" || len(out.To) > 0 {
			t.Errorf("%s: rules: %+v, %+v", text, in, out)
		}
	}
}

// TestEmptyProtocols: an empty list of protocols is a fault, and its rule fails closed. It
// stays closed when the policy is encoded and decoded again.
func TestEmptyProtocols(t *testing.T) {
	text := []byte(`{"spec":{"tier":"Admin","priority":3,"subject":{"namespaces":{}},
		"egress":[{"action":"Deny","to":[{"networks":["192.0.2.0/24"]}],"protocols":[]},{"action":"Accept","to":[{"namespaces":{}}]}]}}`)
	var p v1alpha2.ClusterNetworkPolicy
	faults := Decode(text, &p)
	if len(faults) != 1 || faults[0].Field != "spec.egress[0].protocols" {
		t.Errorf("faults: %+v", faults)
	}
	p.Spec = ClosedSpec(text)
	encoded, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var again v1alpha2.ClusterNetworkPolicy
	if err := json.Unmarshal(encoded, &again); err != nil {
		t.Fatal(err)
	}
	for _, spec := range []v1alpha2.ClusterNetworkPolicySpec{p.Spec, again.Spec} {
		if len(spec.Egress) != 2 || spec.Egress[0].Action != "Deny" || len(spec.Egress[0].To) != 0 || len(spec.Egress[1].To) != 1 {
			t.Errorf("egress: %+v", spec.Egress)
		}
	}
}
