package policy_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
)

// TestEmptyListsSelectNothing: whatever list of a rule becomes empty once it is resolved, the rule matches nothing, whether it allows or denies, and also after a way
// through JSON, which drops empty lists.
func TestEmptyListsSelectNothing(t *testing.T) {
	none := "{matchLabels: {app: none}}"
	networkPolicies := map[string]string{
		"no pod":                         "{podSelector: {}, ingress: [{from: [{podSelector: " + none + "}]}]}",
		"no namespace":                   "{podSelector: {}, ingress: [{from: [{namespaceSelector: " + none + "}]}]}",
		"no pod of a namespace":          "{podSelector: {}, ingress: [{from: [{namespaceSelector: {}, podSelector: " + none + "}]}]}",
		"no address but the exceptions":  "{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/9, 10.128.0.0/9]}}]}]}",
		"everything but everything":      "{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [0.0.0.0/1, 128.0.0.0/1]}}]}]}",
		"a named port that nobody has":   "{podSelector: {}, ingress: [{ports: [{port: nowhere}]}]}",
		"a named port of another peer":   "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: " + none + "}], ports: [{port: nowhere}]}]}",
		"no pod in each of several":      "{podSelector: {}, ingress: [{from: [{podSelector: " + none + "}, {namespaceSelector: " + none + "}, {ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/9, 10.128.0.0/9]}}]}]}",
		"labels of a namespace on a pod": "{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {imitated: yes-it-is}}}]}]}",
	}
	clusterPolicies := map[string]string{
		"no namespace":                   "ingress: [{action: ACTION, from: [{namespaces: " + none + "}]}]",
		"no pod":                         "ingress: [{action: ACTION, from: [{pods: {podSelector: " + none + "}}]}]",
		"no node":                        "egress: [{action: ACTION, to: [{nodes: " + none + "}]}]",
		"a named port that nobody has":   "ingress: [{action: ACTION, from: [{namespaces: {}}], protocols: [{destinationNamedPort: nowhere}]}]",
		"labels of a namespace on a pod": "ingress: [{action: ACTION, from: [{namespaces: {matchLabels: {imitated: yes-it-is}}}]}]",
	}
	antreaPolicies := map[string]string{
		"no pod":                                 "ingress: [{action: ACTION, from: [{podSelector: " + none + "}]}]",
		"a group without pods":                   "ingress: [{action: ACTION, from: [{group: empty}]}]",
		"a group of groups without pods":         "ingress: [{action: ACTION, from: [{group: parent}]}]",
		"no node":                                "egress: [{action: ACTION, to: [{nodeSelector: " + none + "}]}]",
		"a named port that nobody has":           "ingress: [{action: ACTION, from: [{podSelector: {}}], ports: [{port: nowhere}]}]",
		"no address but the exceptions":          "egress: [{action: ACTION, to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/9, 10.128.0.0/9]}}]}]",
		"labels of a namespace on a pod":         "ingress: [{action: ACTION, from: [{namespaceSelector: {matchLabels: {imitated: yes-it-is}}}]}]",
		"a group without pods and a named port ": "ingress: [{action: ACTION, from: [{group: empty}], ports: [{port: nowhere}]}]",
	}
	begin := func(t *testing.T) *state {
		s := newState(t)
		s.SetNode(newNode("here", "192.0.2.1", "10.0.0.0/24"))
		s.SetNamespace(newNamespace("x"))
		s.SetPod(newPod("x/a app=web imitated=yes-it-is kubernetes.io/metadata.name=y", "10.0.0.1"))
		return s
	}
	for what, spec := range networkPolicies {
		t.Run("NetworkPolicy, "+what, func(t *testing.T) {
			s := begin(t)
			if problems := s.SetNetworkPolicy(networkPolicy(t, spec)); len(problems) > 0 {
				t.Fatal(problems)
			}
			wantNoMatch(t, s)
		})
	}
	for what, rules := range clusterPolicies {
		for _, action := range []string{"Accept", "Deny", "Pass"} {
			t.Run("ClusterNetworkPolicy, "+what+", "+action, func(t *testing.T) {
				s := begin(t)
				p := &v1alpha2.ClusterNetworkPolicy{}
				text := "metadata: {name: p}\nspec: {tier: Admin, priority: 5, subject: {namespaces: {}}, " + withAction(rules, action) + "}"
				if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
					t.Fatal(err)
				}
				if problems := s.SetClusterNetworkPolicy(p); len(problems) > 0 {
					t.Fatal(problems)
				}
				wantNoMatch(t, s)
			})
		}
	}
	for what, rules := range antreaPolicies {
		for _, action := range []string{"Allow", "Drop", "Reject", "Pass"} {
			t.Run("Antrea, "+what+", "+action, func(t *testing.T) {
				s := begin(t)
				s.SetAntrea(antreaObject(t, antrea.KindClusterGroup, "empty", "{podSelector: "+none+"}"))
				s.SetAntrea(antreaObject(t, antrea.KindClusterGroup, "parent", "{childGroups: [empty]}"))
				s.SetAntrea(antreaObject(t, antrea.KindClusterNetworkPolicy, "p", "{priority: 5, appliedTo: [{podSelector: {}}], "+withAction(rules, action)+"}"))
				if problems := s.AntreaProblems(); len(problems) > 0 {
					t.Fatal(problems)
				}
				wantNoMatch(t, s)
			})
		}
	}
}

func withAction(rules, action string) string { return strings.ReplaceAll(rules, "ACTION", action) }

// wantNoMatch checks that there are policies, with rules or without, and that no rule can match a packet.
func wantNoMatch(t *testing.T, s *state) {
	t.Helper()
	s.flush()
	if len(s.model.Policies) == 0 || len(s.model.Endpoints) != 1 {
		t.Fatal("no policy, or no endpoint")
	}
	any := func(ids []model.GroupID) bool {
		return slices.ContainsFunc(ids, func(id model.GroupID) bool {
			members := slices.Collect(maps.Keys(s.model.Groups[id].Members))
			return len(members) > 0 && (id.Kind() != model.Networks || len(ipsets.Ranges(members)) > 0)
		})
	}
	for _, p := range s.model.Policies {
		for _, d := range model.Directions() {
			for _, r := range p.Rules(d) {
				text, err := json.Marshal(r)
				if err != nil {
					t.Fatal(err)
				}
				var again model.Rule
				if err := json.Unmarshal(text, &again); err != nil {
					t.Fatal(err)
				}
				for _, r := range []model.Rule{r, again} {
					peers := r.AnyPeer || any(r.Peers)
					ports := r.AnyPort || len(r.Ports) > 0 || any(r.NamedPorts)
					if peers && ports {
						t.Errorf("%s of %s matches: %s", r.Name, p.ID, text)
					}
				}
			}
		}
	}
}
