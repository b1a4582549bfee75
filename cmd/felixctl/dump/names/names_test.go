package names_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/names"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/wanted"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/truthtable"
)

// modelOf returns the model of the first node at the last step of the truth table
// that has policies.
func modelOf(t *testing.T) *control.Model {
	t.Helper()
	steps, err := truthtable.ReadFile("../../../../test/truthtable/testdata/sample.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var best *control.Model
	for _, step := range steps {
		o := step.Objects(model.IPv4)
		m, _, err := wanted.FromEvents(wanted.Events(control.Objects{
			Nodes: o.Nodes, Namespaces: o.Namespaces, Pods: o.Pods, Policies: o.Policies, ClusterPolicies: o.ClusterPolicies,
		}), o.Nodes[0].Name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if best == nil || len(m.Policies) > len(best.Policies) {
			best = m
		}
	}
	if len(best.Policies) == 0 {
		t.Fatal("no policies")
	}
	return best
}

// Every chain, set, conjunction and address that follows from a model has a name.
func TestAllHasNames(t *testing.T) {
	m := modelOf(t)
	n := names.Of(m)
	pods := map[netip.Addr]bool{}
	for _, p := range m.Pods {
		for _, a := range p.Addresses {
			pods[a] = true
		}
	}
	for _, backend := range []string{config.NFTables, config.IPTablesNFT, config.OpenFlow} {
		s, err := wanted.Of(m, backend)
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range s.Tables {
			for _, c := range table.Chains {
				kernels := c.Hook != nil && table.Dialect == dump.IPTables
				tree := strings.HasPrefix(c.Name, "flx-from-") || strings.HasPrefix(c.Name, "flx-to-")
				if n.Chain(c.Name) == "" && !kernels && !tree {
					t.Errorf("%s: chain %s has no name", backend, c.Name)
				}
			}
			s.IPSets = append(s.IPSets, table.Sets...)
		}
		for _, set := range s.IPSets {
			if n.Set(set.Name) == "" {
				t.Errorf("%s: set %s has no name", backend, set.Name)
			}
			for _, e := range set.Elements {
				if pods[e.Prefix.Addr()] && e.Prefix.IsSingleIP() && !strings.Contains(n.Note(e), "/") {
					t.Errorf("%s: element %s of %s is %q", backend, e, set.Name, n.Note(e))
				}
			}
		}
		for _, f := range s.Flows {
			for _, a := range f.Actions {
				if c, ok := a.(flowtext.Conjunction); ok && n.Rule(c.ID) == "" {
					t.Errorf("%s has no name", c)
				}
			}
		}
	}
}

// Names come from the model, and unknown names stay unnamed.
func TestNames(t *testing.T) {
	m := modelOf(t)
	n := names.Of(m)
	p := m.Policies[0]
	found := false
	s, err := wanted.Of(m, config.NFTables)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Tables[0].Chains {
		found = found || strings.Contains(n.Chain(c.Name), p.ID.String()+" ")
	}
	if !found {
		t.Errorf("no chain is named after %s", p.ID)
	}
	none := names.Of(nil)
	if none.Chain("pin-x/y-abcdefgh") != "" || none.Address(netip.MustParseAddr("10.0.0.1")) != "" || none.Rule(7) != "" {
		t.Error("names without a model")
	}
	if none.Chain("forward") == "" || none.Port(1) == "" {
		t.Error("objects of every node are not named")
	}
}

// TestRuleNames: a conjunction is named by the rule's place in its object, which is not its place in
// the model if other rules match nothing. Notes also have the name that the author gave the rule.
func TestRuleNames(t *testing.T) {
	id := model.PolicyID{Tier: model.TierAdmin, API: model.AntreaCluster, Name: "p"}
	n := names.Of(&control.Model{Policies: []*model.Policy{{ID: id, Ingress: []model.Rule{
		{Name: "ingress[1]", Title: "no-ops", Action: model.Deny, AnyPeer: true, AnyPort: true},
		{Name: "ingress[2]", Action: model.Deny, AnyPeer: true, AnyPort: true},
	}}}})
	for i, want := range []string{"clusternetworkpolicy.crd.antrea.io/p ingress[1] (no-ops)", "clusternetworkpolicy.crd.antrea.io/p ingress[2]"} {
		rule := policyflows.HashID(policyflows.RuleID{Policy: id, Direction: model.Ingress, Index: i})
		if got := n.Rule(rule); !strings.HasPrefix(want, got) || got == "" {
			t.Errorf("rule %q, want %q", got, want)
		}
		f := &flowtext.Flow{Actions: []flowtext.Action{flowtext.Conjunction{ID: rule, K: 1, N: 2}}}
		if got := n.Note(f); got != want {
			t.Errorf("note %q, want %q", got, want)
		}
	}
	if got := n.Note(&dump.Rule{Rule: tables.Rule{Action: tables.Drop{}, Comment: "clusternetworkpolicy.crd.antrea.io/p ingress[1]"}}); got != "rule no-ops" {
		t.Errorf("note of a rule: %q", got)
	}
	if got := n.RuleName("clusternetworkpolicy.crd.antrea.io/p", "ingress[1]"); got != "no-ops" {
		t.Errorf("name %q", got)
	}
}
