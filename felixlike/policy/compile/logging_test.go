package compile

import (
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/model"
)

// TestLogAnnotation: the annotation names the rules that log by what they do. A value that is
// not known is a problem, and nothing logs.
func TestLogAnnotation(t *testing.T) {
	everybody := []v1alpha2.ClusterNetworkPolicyIngressPeer{{Namespaces: &metav1.LabelSelector{}}}
	rule := func(a v1alpha2.ClusterNetworkPolicyRuleAction) v1alpha2.ClusterNetworkPolicyIngressRule {
		return v1alpha2.ClusterNetworkPolicyIngressRule{Action: a, From: everybody}
	}
	cluster := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: v1alpha2.ClusterNetworkPolicySpec{
		Tier: v1alpha2.AdminTier, Subject: v1alpha2.ClusterNetworkPolicySubject{Namespaces: &metav1.LabelSelector{}},
		Ingress: []v1alpha2.ClusterNetworkPolicyIngressRule{rule("Accept"), rule("Deny"), rule("Pass")},
	}}
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "p"},
		Spec:       networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{}}},
	}
	const denies, unknown = "has no rule that denies", "nothing is logged"
	for _, c := range []struct {
		annotations   map[string]string
		cluster, pods string // the actions that log
		label         string
		// problem of both, and of the NetworkPolicy
		problem, own string
	}{
		{nil, "", "", "", "", ""},
		{map[string]string{model.LogAnnotation: "true", model.LogLabelAnnotation: "audit"}, "allow deny pass", "allow", "audit", "", ""},
		{map[string]string{model.LogAnnotation: "false"}, "", "", "", "", ""},
		{map[string]string{model.LogLabelAnnotation: "audit"}, "", "", "", "", ""},
		{map[string]string{model.LogAnnotation: "allow"}, "allow", "allow", "", "", ""},
		{map[string]string{model.LogAnnotation: "deny"}, "deny", "", "", "", denies},
		{map[string]string{model.LogAnnotation: "allow, deny"}, "allow deny", "allow", "", "", denies},
		{map[string]string{model.LogAnnotation: ""}, "", "", "", unknown, ""},
		{map[string]string{model.LogAnnotation: "allow,yes"}, "", "", "", unknown, ""},
		{map[string]string{model.LogAnnotation: "True"}, "", "", "", unknown, ""},
		{map[string]string{model.LogAnnotation: "true", model.LogLabelAnnotation: "a\nb"}, "allow deny pass", "allow", "", "invalid label", ""},
	} {
		cluster.Annotations, policy.Annotations = c.annotations, c.annotations
		check := func(p *Policy, problems []model.Problem, want, problem string) {
			t.Helper()
			var logs []string
			for _, r := range p.Model.Ingress {
				if r.Log {
					logs = append(logs, r.Action.String())
				}
				if r.Log && r.LogLabel != c.label || !r.Log && r.LogLabel != "" {
					t.Errorf("%v: label %q", c.annotations, r.LogLabel)
				}
			}
			if got := strings.Join(logs, " "); got != want {
				t.Errorf("%v: logs %q, want %q", c.annotations, got, want)
			}
			if (problem == "") != (len(problems) == 0) || !slices.ContainsFunc(append(problems, model.Problem{}), func(p model.Problem) bool { return strings.Contains(p.Reason, problem) }) {
				t.Errorf("%v: problems %v, want %q", c.annotations, problems, problem)
			}
		}
		p, problems := ClusterNetworkPolicy(cluster, GroupIDHash)
		check(p, problems, c.cluster, c.problem)
		p, problems = NetworkPolicy(policy, GroupIDHash)
		check(p, problems, c.pods, c.problem+c.own)
	}
}

// TestLogValuesInProblems: a problem repeats only the beginning of a long value.
func TestLogValuesInProblems(t *testing.T) {
	long := strings.Repeat("é", 100_000)
	for _, annotations := range []map[string]string{{model.LogAnnotation: long}, {model.LogAnnotation: "true", model.LogLabelAnnotation: long}} {
		_, problems := NetworkPolicy(&networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "p", Annotations: annotations},
			Spec:       networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{}}},
		}, GroupIDHash)
		if len(problems) != 1 || len(problems[0].Reason) > 500 || !strings.Contains(problems[0].Reason, `"`+strings.Repeat("é", 30)+`..."`) {
			t.Errorf("%.600v", problems)
		}
	}
}
