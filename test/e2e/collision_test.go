package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/test/lab"
)

// collidingPolicies are pairs of policies with equal hashes, in earlier versions or now.
func collidingPolicies() map[string][2]model.PolicyID {
	id := func(namespace, name string) model.PolicyID {
		return model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: namespace, Name: name}
	}
	return map[string][2]model.PolicyID{
		// Names of chains had 40 bits of hash.
		"one namespace": {
			id("shop", "payments-frontend-to-backend-allow-internal-traffic-v1145861"),
			id("shop", "payments-frontend-to-backend-allow-internal-traffic-v1394388"),
		},
		"two tenants": {id("production-a", "p404936"), id("production-b", "p1138324")},
		"one id of a conjunction": oneConjunction(func(n int) model.PolicyID {
			return id([]string{"tenant-a", "tenant-b"}[n%2], fmt.Sprintf("p%d", n))
		}),
	}
}

// oneConjunction finds two policies with equal 32-bit hashes of their first ingress rules.
func oneConjunction(policy func(int) model.PolicyID) [2]model.PolicyID {
	seen := map[uint32]model.PolicyID{}
	for n := 0; ; n++ {
		id := policy(n)
		hash := policyflows.HashID(policyflows.RuleID{Policy: id, Direction: model.Ingress})
		if other, found := seen[hash]; found {
			return [2]model.PolicyID{other, id}
		}
		seen[hash] = id
	}
}

// TestCollidingPolicies gives pods a policy that allows one client, and other pods a
// policy that allows all, by names with one hash. Neither opens or closes a pod of the
// other, whichever comes first, and after a restart.
func TestCollidingPolicies(t *testing.T) {
	t.Parallel()
	inEachBackend(t, collidingPoliciesDecideForTheirOwnPods)
}

func collidingPoliciesDecideForTheirOwnPods(t *testing.T, l *lab.Lab, _ string) {
	for name, pair := range collidingPolicies() {
		for i, closing := range pair {
			opening := pair[1-i]
			pods := threeNodes + targetPod(closing, "closed") + targetPod(opening, "open")
			closes := policyText(closing, "closed", `{from: [{namespaceSelector: {}, podSelector: {matchLabels: {pod: c}}}], ports: [{port: 80}]}`)
			opens := policyText(opening, "open", "{}")
			for _, steps := range [][]string{{closes, closes + opens}, {opens, closes + opens}} {
				for _, policies := range steps {
					set(t, l, state(t, pods+policies))
				}
				expectCollision(t, l, closing, opening)
			}
			if i == 1 {
				node := l.Node("node1")
				if err := node.KillAgent(); err != nil {
					t.Fatal(err)
				}
				if err := node.StartAgent(); err != nil {
					t.Fatal(err)
				}
				set(t, l, state(t, pods+closes+opens))
				expectCollision(t, l, closing, opening)
			}
			if t.Failed() {
				t.Fatalf("%s: %s closes, %s opens", name, closing, opening)
			}
		}
	}
}

// expectCollision probes both pods, as a client that each policy allows, and as one that
// only the opening policy allows.
func expectCollision(t *testing.T, l *lab.Lab, closing, opening model.PolicyID) {
	t.Helper()
	closed, open := closing.Namespace+"/closed", opening.Namespace+"/open"
	expect(t, l, true, "x/c", closed, model.TCP, 80)
	expect(t, l, false, "x/c", closed, model.TCP, 81)
	expect(t, l, false, "x/b", closed, model.TCP, 80)
	for _, client := range []string{"x/c", "x/b"} {
		expect(t, l, true, client, open, model.TCP, 81)
	}
}

func targetPod(policy model.PolicyID, name string) string {
	return fmt.Sprintf(`---
{kind: Pod, metadata: {namespace: %s, name: %s, labels: {is: %[2]s}}, spec: {nodeName: node1, containers: [{name: c, ports: [{containerPort: 80}, {containerPort: 81}]}]}}
`, policy.Namespace, name)
}

func policyText(id model.PolicyID, selected, rule string) string {
	return strings.NewReplacer("NAMESPACE", id.Namespace, "NAME", id.Name, "SELECTED", selected, "RULE", rule).Replace(`---
{kind: NetworkPolicy, metadata: {namespace: NAMESPACE, name: NAME}, spec: {podSelector: {matchLabels: {is: SELECTED}}, ingress: [RULE], policyTypes: [Ingress]}}
`)
}
