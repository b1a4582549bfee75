package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
)

// TestStagedPolicies stages policies of two kinds: all packets go as before, and the agent counts the connections that they would have denied.
// When they are enforced, these are denied.
func TestStagedPolicies(t *testing.T) {
	const (
		annotation = `annotations: {felixlike.io/enforce: "no"}`
		fromC      = `
{kind: NetworkPolicy, metadata: {namespace: x, name: from-c, ` + annotation + `}, spec: {podSelector: {matchLabels: {pod: a}},
  ingress: [{from: [{podSelector: {matchLabels: {pod: c}}}], ports: [{port: 80}]}]}}
`
		notToD = `
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: not-to-d, ` + annotation + `}
spec:
  tier: Admin
  priority: 10
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {pod: a}}}}
  egress:
  - {action: Deny, to: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {pod: d}}}}]}
`
	)
	inEachPlace(t, func(t *testing.T, l *lab.Lab) {
		set(t, l, state(t, threeNodes))
		expect(t, l, true, "x/b", "x/a", model.TCP, 80) // it is older than the policies
		set(t, l, state(t, threeNodes, fromC, notToD))
		staged := func() control.Staged {
			s, err := l.Node("node1").Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Policies) != 0 {
				t.Fatalf("enforced: %v", s.Policies)
			}
			if s.Staged == nil {
				return control.Staged{}
			}
			return *s.Staged
		}
		began := time.Now()
		eventually.True(t, "a look at the connections", func() bool { s := staged(); return s.Last != nil && s.Last.At.After(began) })
		for _, from := range []string{"x/b", "x/c", "x/d"} {
			expect(t, l, true, from, "x/a", model.TCP, 80)
		}
		expect(t, l, true, "x/a", "x/d", model.TCP, 80)
		expect(t, l, true, "x/a", "x/c", model.TCP, 80)
		eventually.True(t, "all connections are judged", func() bool {
			p := staged().Policies
			return len(p) == 2 && p[0].Evaluated >= 4 && p[1].Evaluated >= 6
		})
		all := staged().Policies
		if p := all[0]; p.Policy != "clusternetworkpolicy/not-to-d" || p.Denied != 2 || p.Evaluated != 4 || len(p.Pods) != 1 || p.Pods[0].First.Destination != l.Pod(pod("d")).Address(model.FamilyOf(p.Pods[0].First.Destination)) {
			t.Errorf("%+v", p)
		}
		if p := all[1]; p.Policy != "networkpolicy/x/from-c" || p.Denied != 4 || p.Evaluated != 6 || len(p.Pods) != 1 || p.Pods[0].Pod != "x/a" || p.Pods[0].First.Port != 80 {
			t.Errorf("%+v", p)
		}
		out, _, code := felixctl(t, "policies", "--staged", "--socket", l.Node("node1").ControlSocket())
		if code != 0 || !strings.Contains(out, "x/from-c") || !strings.Contains(out, "  x/a") {
			t.Errorf("exit code %d: %s", code, out)
		}
		out, errs, code := felixctl(t, "drops", "--staged", "--pod", "x/b", "-o", "json", "--socket", l.Node("node1").ControlSocket())
		if code != 1 || strings.Count(out, "\n") != 2 || strings.Count(out, `"pod":"x/b"`) != 2 || !strings.Contains(out, `"by":"staged"`) || !strings.Contains(out, `"policy":"networkpolicy/x/from-c"`) {
			t.Errorf("exit code %d: %s%s", code, out, errs)
		}
		liveIsWanted(t, l.Name(), "node1")
		enforced := strings.NewReplacer(annotation, `annotations: {felixlike.io/enforce: "yes"}`)
		set(t, l, state(t, threeNodes, enforced.Replace(fromC), enforced.Replace(notToD)))
		expect(t, l, false, "x/b", "x/a", model.TCP, 80)
		expect(t, l, true, "x/c", "x/a", model.TCP, 80)
		expect(t, l, false, "x/a", "x/d", model.TCP, 80)
	})
}
