package backend

import (
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

func TestCollisionsAreReported(t *testing.T) {
	table := chainsOnly{}
	r := rules.NewRenderer(model.GatewayPort, rules.IPTablesNameLength).Narrowed(0, 0)
	all := []managers.Manager{managers.NewPolicyManager("node1", r, table), managers.NewEndpointManager(r, table, noSets{}, managers.NewTreeDispatcher(r, table))}
	found := newCollisions(all)
	update := func(updates ...model.Update) []tables.Refusal {
		for _, m := range all {
			for _, u := range updates {
				m.OnUpdate(u)
			}
		}
		for _, m := range all {
			m.CompleteDeferredWork()
		}
		return found.and(Applied{Refused: []tables.Refusal{{Object: "set"}}}).Refused[1:]
	}
	policy := func(name string) model.PolicyID {
		return model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "x", Name: name}
	}
	pod := func(name, policyName string) []model.Update {
		id := model.PodID{Namespace: "x", Name: name}
		return []model.Update{
			model.PolicyUpdate{Policy: &model.Policy{ID: policy(policyName), Ingress: []model.Rule{{Name: "ingress[0]", Action: model.Allow, AnyPeer: true, AnyPort: true}}}},
			model.EndpointUpdate{Endpoint: &model.Endpoint{ID: id, Ingress: model.Applied{NetworkPolicies: []model.PolicyID{policy(policyName)}}}},
			model.AttachmentUpdate{Attachment: &model.Attachment{Pod: id, Interface: name}},
		}
	}
	if refused := update(pod("b", "second")...); len(refused) > 0 {
		t.Errorf("alone: %+v", refused)
	}
	refused := update(pod("a", "first")...)
	if len(refused) != 2 {
		t.Fatalf("refused %+v", refused)
	}
	since := refused[0].Since
	for i, object := range []string{policyflows.Object, managers.ObjectList} {
		r := refused[i]
		if r.Object != object || r.Name != "networkpolicy/x/first" || r.Rule != "ingress" || !slices.Equal(r.Closed, []string{"x/a"}) || !strings.Contains(r.Reason, "is that of networkpolicy/x/second") || since.IsZero() {
			t.Errorf("refused %+v", r)
		}
	}
	if again := update(); !again[0].Since.Equal(since) {
		t.Error("it began anew")
	}
	if refused := update(model.PolicyRemove{ID: policy("second")}, model.EndpointRemove{ID: model.PodID{Namespace: "x", Name: "b"}}); len(refused) > 0 {
		t.Errorf("once the name is free: %+v", refused)
	}
}

type chainsOnly struct{}

func (chainsOnly) UpdateChain(tables.Chain) {}

func (chainsOnly) RemoveChain(string) {}

// noSets is a driver of sets that keeps nothing.
type noSets struct{}

func (noSets) CreateSet(ipsets.Set)                 {}
func (noSets) RemoveSet(string)                     {}
func (noSets) AddMembers(string, []model.Member)    {}
func (noSets) RemoveMembers(string, []model.Member) {}

// Status and notices name a policy that is closed because its group has the identifier of
// another one.
