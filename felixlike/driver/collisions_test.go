package driver

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/tables"
)

// Status names each object without a chain because of a collision, and the pods that
// are closed for it.
func TestCollisionsAreNamed(t *testing.T) {
	f, table, _ := startQuarantine(t, &drivertest.LogBuffer{})
	for _, object := range []string{policyflows.Object, managers.ObjectList} {
		origin := map[string]tables.Origin{policyflows.Object: webOrigin, managers.ObjectList: tables.OfList{Identity: "another list"}}[object]
		q := refuse(t, f, table, tables.Refusal{Object: object, Name: "x/web", Rule: "ingress", Reason: object, Origin: origin}.ClosingPods([]model.PodID{podA}))
		want := map[string]string{policyflows.Object: "networkpolicy/x/web", managers.ObjectList: "pod/x/a"}[object]
		if owners := strings.Join(texts(q.Owners, model.ObjectRef.String), " "); owners != want || !slices.Equal(q.Pods, []string{"x/a"}) {
			t.Errorf("%s: owners %q, pods %q", object, owners, q.Pods)
		}
	}
}

// Two policies, and two lists of policies, want the same name. The lesser one gets it;
// the other one is refused while the first exists.
func TestCollidingGroupsAreNamed(t *testing.T) {
	f, _, _ := startQuarantine(t, &drivertest.LogBuffer{})
	if err := f.queue.ask(t.Context(), func() { *f.cluster.Engine() = *f.cluster.Engine().Narrowed(0) }); err != nil {
		t.Fatal(err)
	}
	other := webPolicy().(datastore.NetworkPolicySet)
	other.Policy = other.Policy.DeepCopy()
	other.Policy.Name = "other"
	other.Policy.Spec.Ingress[0].From[0].PodSelector.MatchLabels = map[string]string{"app": "server"}
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"), datastore.NamespaceSet{Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}}, labelled("a"), webPolicy(), other)
	named := func(p model.Problem) bool {
		return p.Object.Name == "web" && strings.Contains(p.Reason, "one identifier")
	}
	if problems := f.Status().Problems; !slices.ContainsFunc(problems, named) {
		t.Errorf("status has %v", problems)
	}
	notices, err := f.Notices(t.Context())
	if err != nil || !slices.ContainsFunc(notices, func(n datastore.Notice) bool { return n.Kind == cluster.Quarantined && named(n.Problem) }) {
		t.Errorf("notices are %v, %v", notices, err)
	}
}
