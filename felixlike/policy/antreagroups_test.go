package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

func antreaObject(t testing.TB, kind antrea.Kind, name, spec string) antrea.Object {
	t.Helper()
	o := kind.New()
	if err := yaml.UnmarshalStrict([]byte("spec: "+spec), o); err != nil {
		t.Fatal(err)
	}
	o.SetName(name)
	if kind.Namespaced() {
		o.SetNamespace("x")
	}
	return o
}

// TestGroupEditsWidenNothing: one team edits a group so that it cannot be understood. The policies of other teams that apply to it keep the
// pods that they had and are closed there, in any mix with other entries, and are named. Then they follow the group again.
func TestGroupEditsWidenNothing(t *testing.T) {
	for _, kinds := range [][2]antrea.Kind{{antrea.KindClusterNetworkPolicy, antrea.KindClusterGroup}, {antrea.KindNetworkPolicy, antrea.KindGroup}} {
		group := func(name, spec string) antrea.Object { return antreaObject(t, kinds[1], name, spec) }
		begin := func(own string, groups ...antrea.Object) *state {
			s := newState(t)
			s.SetNamespace(newNamespace("x"))
			for i, name := range []string{"db", "web", "other"} {
				s.SetPod(newPod(fmt.Sprintf("x/%s app=%[1]s", name), fmt.Sprintf("10.0.0.%d", i+1)))
			}
			s.SetAntrea(antreaObject(t, kinds[0], "p", own))
			for _, g := range groups {
				s.SetAntrea(g)
			}
			s.flush()
			return s
		}
		// applies lists the pods that the policy applies to, with its rules.
		applies := func(s *state) string {
			var pods, rules []string
			for id, e := range s.model.Endpoints {
				if len(e.Ingress.Admin) > 0 {
					pods = append(pods, id.Name)
				}
			}
			for _, p := range s.model.Policies {
				for _, r := range p.Ingress {
					rules = append(rules, r.Action.String())
				}
			}
			slices.Sort(pods)
			slices.Sort(rules)
			return strings.TrimSpace(strings.Join(pods, " ") + " | " + strings.Join(slices.Compact(rules), ", "))
		}
		const (
			own    = "{priority: 5, appliedTo: [{group: g}], ingress: [{name: a, action: Allow}, {name: d, action: Drop}]}"
			beside = "{priority: 5, appliedTo: [{podSelector: {matchLabels: {app: web}}}, {group: g}], ingress: [{name: a, action: Allow}, {name: d, action: Drop}]}"
			wrong  = "{priority: 5, appliedTo: [{group: g, podSelector: {}}], ingress: [{name: a, action: Allow}, {name: d, action: Drop}]}"
			db     = "{podSelector: {matchLabels: {app: db}}}"
		)
		edits := map[string][]antrea.Object{
			"nested children":  {group("g", "{childGroups: [c]}"), group("c", "{childGroups: [leaf]}"), group("leaf", "{podSelector: {}}")},
			"itself":           {group("g", "{childGroups: [c]}"), group("c", "{childGroups: [g]}")},
			"a Service":        {group("g", "{serviceReference: {name: s}}")},
			"a wrong selector": {group("g", "{podSelector: {matchExpressions: [{key: app, operator: Is}]}}")},
			"nothing":          {group("g", "{}")},
			"two kinds":        {group("g", "{podSelector: {}, childGroups: [leaf]}"), group("leaf", "{podSelector: {}}")},
		}
		for what, objects := range edits {
			for _, c := range []struct{ spec, before, after string }{
				{own, "db | allow, deny", "db | deny"}, {beside, "db web | allow, deny", "db web | deny"}, {wrong, "db other web | deny", "db other web | deny"},
			} {
				t.Run(fmt.Sprintf("%s, %s, %s", kinds[0], what, c.spec), func(t *testing.T) {
					s := begin(c.spec, group("g", db))
					equal(t, "before", applies(s), c.before)
					for _, o := range objects {
						s.SetAntrea(o)
					}
					s.flush()
					equal(t, "after", applies(s), c.after)
					if c.spec != wrong && !strings.Contains(reasons(s.AntreaProblems()), "the policy applies to the pods that the group selected before") {
						t.Errorf("problems: %s", reasons(s.AntreaProblems()))
					}
					// A change of the policy does not forget them.
					s.SetAntrea(antreaObject(t, kinds[0], "p", strings.Replace(c.spec, "priority: 5", "priority: 6", 1)))
					s.flush()
					equal(t, "with another policy", applies(s), c.after)
					s.SetAntrea(group("g", "{podSelector: {matchLabels: {app: other}}}"))
					s.flush()
					equal(t, "understood again", applies(s), strings.Replace(c.before, "db", map[bool]string{true: "db", false: "other"}[c.spec == wrong], 1))
				})
			}
		}
		// An agent that starts does not know the pods of before.
		s := begin(own, group("g", "{childGroups: [c, leaf]}"), group("c", "{childGroups: [leaf, g]}"), group("leaf", db))
		equal(t, "at start, nested", applies(s), "db | deny")
		s = begin(own, group("g", "{serviceReference: {name: s}}"))
		equal(t, "at start, nothing understood", applies(s), "|")
		s.DeleteAntrea(antrea.ID{Kind: kinds[0], Namespace: group("", "{}").GetNamespace(), Name: "p"})
		for _, name := range []string{"g", "c", "leaf"} {
			s.DeleteAntrea(antrea.ID{Kind: kinds[1], Namespace: group("", "{}").GetNamespace(), Name: name})
		}
		for _, name := range []string{"db", "web", "other"} {
			s.DeletePod(model.PodID{Namespace: "x", Name: name})
		}
		s.DeleteNamespace("x")
		s.flush()
		if left := s.Left(); left != "" {
			t.Errorf("left in the engine: %s", left)
		}
	}
}
