package compile

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/model"
)

func clusterPolicy(t *testing.T, spec string) *v1alpha2.ClusterNetworkPolicy {
	t.Helper()
	p := &v1alpha2.ClusterNetworkPolicy{}
	p.Name = "p"
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestClusterPolicyFailsClosed: an invalid part is reported with its field. Then an Accept
// matches nothing, and a Deny or a Pass denies everything.
func TestClusterPolicyFailsClosed(t *testing.T) {
	const head = "{tier: Admin, priority: 5, subject: {namespaces: {}}, "
	for _, c := range []struct{ name, spec, field, rules string }{
		{"domain names", head + "egress: [{action: Accept, to: [{domainNames: [x.org]}]}]}", "spec.egress[0].to[0].domainNames", ""},
		{"denied domain names", head + "egress: [{action: Deny, to: [{domainNames: [x.org]}]}]}", "spec.egress[0].to[0].domainNames", "deny all"},
		{"unknown peer", head + "ingress: [{action: Pass, from: [{namespaces: {}}, {}]}]}", "spec.ingress[0].from[1]", "deny all"},
		{"unknown peer of Accept", head + "ingress: [{action: Accept, from: [{namespaces: {}}, {}]}]}", "spec.ingress[0].from[1]", ""},
		{"no peers", head + "ingress: [{action: Deny, from: []}]}", "spec.ingress[0].from", "deny all"},
		{"two peers in one", head + "egress: [{action: Pass, to: [{namespaces: {}, nodes: {}}]}]}", "spec.egress[0].to[0]", "deny all"},
		{"operator", head + "egress: [{action: Pass, to: [{nodes: {matchExpressions: [{key: a, operator: Near}]}}]}]}", "spec.egress[0].to[0].nodes.matchExpressions[0].operator", "deny all"},
		{"CIDR", head + "egress: [{action: Deny, to: [{networks: [10.0.0.0/8, 10.0.0.0/33]}]}]}", "spec.egress[0].to[0].networks[1]", "deny all"},
		{"unknown protocol", head + "egress: [{action: Deny, to: [{namespaces: {}}], protocols: [{}]}]}", "spec.egress[0].protocols[0]", "deny all"},
		{"protocol without port", head + "egress: [{action: Accept, to: [{namespaces: {}}], protocols: [{tcp: {}}]}]}", "spec.egress[0].protocols[0].tcp.destinationPort", ""},
		{"range", head + "ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{udp: {destinationPort: {range: {start: 9, end: 8}}}}]}]}", "spec.ingress[0].protocols[0].udp.destinationPort.range", "deny all"},
		{"port name", head + "ingress: [{action: Pass, from: [{namespaces: {}}], protocols: [{destinationNamedPort: 'a b'}]}]}", "spec.ingress[0].protocols[0].destinationNamedPort", "deny all"},
		{"empty protocols", head + "egress: [{action: Deny, to: [{pods: {namespaceSelector: {}, podSelector: {}}}], protocols: []}]}", "spec.egress[0].protocols", "deny all"},
		{"empty protocols of Accept", head + "ingress: [{action: Accept, from: [{namespaces: {}}], protocols: []}]}", "spec.ingress[0].protocols", ""},
		{"port name and networks", head + "egress: [{action: Pass, to: [{namespaces: {}}, {networks: [10.0.0.0/8]}], protocols: [{tcp: {destinationPort: {number: 1}}}, {destinationNamedPort: web}]}]}", "spec.egress[0].protocols", "deny all"},
		{"port name and nodes of Accept", head + "egress: [{action: Accept, to: [{nodes: {}}], protocols: [{destinationNamedPort: web}]}]}", "spec.egress[0].protocols", ""},
		{"action", head + "ingress: [{action: Reflect, from: [{namespaces: {}}]}]}", "spec.ingress[0].action", "deny all"},
		{"tier", "{tier: Top, priority: 5, subject: {namespaces: {}}, ingress: [{action: Accept, from: [{namespaces: {}}]}, {action: Pass, from: [{namespaces: {}}]}]}", "spec.tier", "deny peers"},
		{"priority", "{tier: Baseline, priority: 1001, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}", "spec.priority", "deny peers"},
		{"subject", "{tier: Admin, priority: 1, subject: {}, ingress: [{action: Accept, from: [{namespaces: {}}]}, {action: Deny, from: [{namespaces: {}}]}]}", "spec.subject", "deny peers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, problems := ClusterNetworkPolicy(clusterPolicy(t, c.spec), GroupIDHash)
			if !slices.ContainsFunc(problems, func(p model.Problem) bool { return p.Field == c.field }) {
				t.Errorf("%v do not name %s", problems, c.field)
			}
			var rules []string
			for _, r := range slices.Concat(got.Model.Ingress, got.Model.Egress) {
				what := "peers"
				if r.AnyPeer && r.AnyPort {
					what = "all"
				}
				rules = append(rules, r.Action.String()+" "+what)
			}
			if text := strings.Join(rules, ", "); text != c.rules {
				t.Errorf("%q, want %q", text, c.rules)
			}
			if got.Targets[0].Namespaces == nil || !got.Targets[0].Namespaces.IsEverything() {
				t.Errorf("applies to %v", got.Targets)
			}
		})
	}
}

// TestDenyAction: the annotation makes Deny rules reject. A rule that fails closed drops.
func TestDenyAction(t *testing.T) {
	const spec = "{tier: Admin, priority: 5, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}, {action: Pass, from: [{namespaces: {}}]}, {action: Deny, from: [{}]}], " +
		"egress: [{action: Accept, to: [{namespaces: {}}]}, {action: Deny, to: [{nodes: {}}]}]}"
	for annotation, want := range map[string]string{
		"reject": "[reject pass deny] [allow reject] 1",
		"drop":   "[deny pass deny] [allow deny] 1",
		"":       "[deny pass deny] [allow deny] 2",
		"Reject": "[deny pass deny] [allow deny] 2",
	} {
		p := clusterPolicy(t, spec)
		p.Annotations = map[string]string{"felixlike.io/deny-action": annotation}
		got, problems := ClusterNetworkPolicy(p, GroupIDHash)
		actions := func(rules []model.Rule) []model.Action {
			var all []model.Action
			for _, r := range rules {
				all = append(all, r.Action)
			}
			return all
		}
		if text := fmt.Sprint(actions(got.Model.Ingress), actions(got.Model.Egress), len(problems)); text != want {
			t.Errorf("%q: %s, want %s: %v", annotation, text, want, problems)
		}
		named := slices.ContainsFunc(problems, func(p model.Problem) bool {
			return p.Field == "metadata.annotations[felixlike.io/deny-action]" && strings.Contains(p.Reason, "must be drop or reject")
		})
		if named != (len(problems) > 1) {
			t.Errorf("%q: %v", annotation, problems)
		}
	}
}

// TestClusterPolicyLimits: a direction above a limit that denies or passes anything
// denies everything, and one that only accepts has no rules.
func TestClusterPolicyLimits(t *testing.T) {
	for action, want := range map[v1alpha2.ClusterNetworkPolicyRuleAction]string{
		v1alpha2.ClusterNetworkPolicyRuleActionAccept: "[]",
		v1alpha2.ClusterNetworkPolicyRuleActionDeny:   "[ingress[0] deny true [] true [] []]",
		v1alpha2.ClusterNetworkPolicyRuleActionPass:   "[ingress[0] deny true [] true [] []]",
	} {
		p := clusterPolicy(t, "{tier: Admin, priority: 5, subject: {namespaces: {}}}")
		r := v1alpha2.ClusterNetworkPolicyIngressRule{Action: action}
		for i := range MaxSelectors + 1 {
			peer := clusterPolicy(t, fmt.Sprintf("{tier: Admin, priority: 5, subject: {namespaces: {matchLabels: {app: a%d}}}}", i)).Spec.Subject.Namespaces
			r.From = append(r.From, v1alpha2.ClusterNetworkPolicyIngressPeer{Namespaces: peer})
		}
		p.Spec.Ingress = append(p.Spec.Ingress, r)
		got, problems := ClusterNetworkPolicy(p, GroupIDHash)
		if text := fmt.Sprint(ruleTexts(got.Model.Ingress)); text != want || len(problems) != 1 || problems[0].Field != "spec.ingress" || len(got.Groups) > 0 {
			t.Errorf("%s: %s, %v, %d groups", action, text, problems, len(got.Groups))
		}
	}
}

// ruleTexts has what rules match and do.
func ruleTexts(rules []model.Rule) []string {
	var all []string
	for _, r := range rules {
		all = append(all, fmt.Sprintf("%s %s %t %v %t %v %v", r.Name, r.Action, r.AnyPeer, r.Peers, r.AnyPort, r.Ports, r.NamedPorts))
	}
	return all
}
