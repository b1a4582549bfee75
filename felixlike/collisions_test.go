package felixlike

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// Status names each object without a chain because of a collision, and the pods that
// are closed for it.
func TestCollisionsAreNamed(t *testing.T) {
	f, table, _ := startQuarantine(t, &logBuffer{})
	for _, object := range []string{policyflows.Object, managers.ObjectList} {
		q := refuse(t, f, table, tables.Refusal{Object: object, Name: "x/web", Rule: "ingress", Reason: object, Closed: []string{"x/a"}})
		want := map[string]string{policyflows.Object: "NetworkPolicy x/web", managers.ObjectList: "Pod x/a"}[object]
		if owners := strings.Join(texts(q.Owners, model.ObjectRef.String), " "); owners != want || !slices.Equal(q.Pods, []string{"x/a"}) {
			t.Errorf("%s: owners %q, pods %q", object, owners, q.Pods)
		}
	}
}

// Two policies, and two lists of policies, want the same name. The lesser one gets it;
// the other one is refused while the first exists.
func TestCollisionsAreReported(t *testing.T) {
	table := chainsOnly{}
	r := rules.NewRenderer(model.GatewayPort, rules.IPTablesNameLength).Narrowed(0, 0)
	all := []managers.Manager{managers.NewPolicyManager("node1", r, table), managers.NewEndpointManager(r, table, noSets{}, managers.NewTreeDispatcher(r, table))}
	found := newCollisions(all)
	tell := func(updates ...model.Update) []tables.Refusal {
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
	if refused := tell(pod("b", "second")...); len(refused) > 0 {
		t.Errorf("alone: %+v", refused)
	}
	refused := tell(pod("a", "first")...)
	if len(refused) != 2 {
		t.Fatalf("refused %+v", refused)
	}
	since := refused[0].Since
	for i, object := range []string{policyflows.Object, managers.ObjectList} {
		r := refused[i]
		if r.Object != object || r.Name != "x/first" || r.Rule != "ingress" || !slices.Equal(r.Closed, []string{"x/a"}) || !strings.Contains(r.Reason, "is that of x/second") || since.IsZero() {
			t.Errorf("refused %+v", r)
		}
	}
	if again := tell(); !again[0].Since.Equal(since) {
		t.Error("it began anew")
	}
	if refused := tell(model.PolicyRemove{ID: policy("second")}, model.EndpointRemove{ID: model.PodID{Namespace: "x", Name: "b"}}); len(refused) > 0 {
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
func TestCollidingGroupsAreNamed(t *testing.T) {
	f, _, _ := startQuarantine(t, &logBuffer{})
	if err := f.ask(t.Context(), func() { f.engine = f.engine.Narrowed(0) }); err != nil {
		t.Fatal(err)
	}
	other := webPolicy().(datastore.NetworkPolicySet)
	other.Policy = other.Policy.DeepCopy()
	other.Policy.Name = "other"
	other.Policy.Spec.Ingress[0].From[0].PodSelector.MatchLabels = map[string]string{"app": "server"}
	f.source.send(true, node("node1", "10.10.0.0/24"), datastore.NamespaceSet{Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}}, labelled("a"), webPolicy(), other)
	named := func(p model.Problem) bool {
		return p.Object.Name == "web" && strings.Contains(p.Reason, "one identifier")
	}
	if problems := f.Status().Problems; !slices.ContainsFunc(problems, named) {
		t.Errorf("status has %v", problems)
	}
	notices, err := f.Notices(t.Context())
	if err != nil || !slices.ContainsFunc(notices, func(n datastore.Notice) bool { return n.Kind == noticeSetAside && named(n.Problem) }) {
		t.Errorf("notices are %v, %v", notices, err)
	}
}
