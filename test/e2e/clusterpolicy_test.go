package e2e

import (
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
)

// adminDeny denies ingress from x/c to x/a, and passes x/b on to the next tier.
const adminDeny = `
---
{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: deny-c}, spec: {tier: Admin, priority: 1,
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {pod: a}}}},
  ingress: [{action: Deny, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {pod: c}}}}]},
            {action: Pass, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {pod: b}}}}]}]}}
`

// baselineDeny denies all ingress of the namespace that no NetworkPolicy is about.
const baselineDeny = `
---
{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: default-deny}, spec: {tier: Baseline, priority: 1,
  subject: {namespaces: {matchLabels: {kubernetes.io/metadata.name: x}}},
  ingress: [{action: Deny, from: [{namespaces: {}}]}]}}
`

// TestClusterNetworkPolicies gives pods policies of all tiers by manifests. No
// NetworkPolicy allows packets that the admin tier denies, and the baseline tier decides
// for pods without a NetworkPolicy.
func TestClusterNetworkPolicies(t *testing.T) {
	t.Parallel()
	inEachBackend(t, func(t *testing.T, l *lab.Lab, _ string) {
		verdicts := func(step, policies string, fromB, fromC, toB bool) {
			t.Helper()
			set(t, l, state(t, threeNodes+policies))
			expect(t, l, fromC, "x/c", "x/a", model.TCP, 80)
			expect(t, l, fromB, "x/b", "x/a", model.TCP, 80)
			expect(t, l, toB, "x/c", "x/b", model.TCP, 80)
			if t.Failed() {
				t.Fatal(step)
			}
		}
		verdicts("a NetworkPolicy alone", "---"+onlyFromC, false, true, true)
		verdicts("the admin tier denies what it allows", "---"+onlyFromC+adminDeny, false, false, true)
		verdicts("the baseline denies the rest", "---"+onlyFromC+adminDeny+baselineDeny, false, false, false)
		verdicts("without the admin tier", "---"+onlyFromC+baselineDeny, false, true, false)
		verdicts("a Pass comes to the baseline", adminDeny+baselineDeny, false, false, false)
		verdicts("no policy", "", true, true, true)
	})
}
