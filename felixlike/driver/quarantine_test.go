package driver

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/eventually"
)

var (
	podA = model.PodID{Namespace: "x", Name: "a"}
	podB = model.PodID{Namespace: "x", Name: "b"}
)

// webPolicy lets the pods labelled app=client in to pod a.
func webPolicy() datastore.Event {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "web"}}
	p.Spec.PodSelector.MatchLabels = map[string]string{"name": "a"}
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
		{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "client"}}},
	}}}
	return datastore.NetworkPolicySet{Policy: p, Source: "web.yaml"}
}

func labelled(name string) datastore.Event {
	e := drivertest.PodOn(name, "node1").(datastore.PodSet)
	e.Pod.Labels = map[string]string{"name": name}
	e.Pod.Status.PodIP = map[string]string{"a": "10.10.0.2", "b": "10.10.0.3"}[name]
	return e
}

// startQuarantine programs pods a and b, and policy web on a.
func startQuarantine(t *testing.T, log *drivertest.LogBuffer) (*fixture, *drivertest.Table, *drivertest.Stages) {
	t.Helper()
	table, others := drivertest.NewTable(t), &drivertest.Stages{Fail: map[string]error{}}
	f := startWith(t, Config{
		Stages:  []backend.Stage{table.Stage(), others.Stage("openflow", false)},
		Backend: &drivertest.Backend{NameIs: "fake", RendererIs: rules.NewRenderer(model.GatewayPort, rules.NFTablesNameLength)}, Log: log.Logger(),
	})
	f.begin(t, labelled("a"), labelled("b"), webPolicy())
	f.Attach("a", "10.10.0.2")
	f.Attach("b", "10.10.0.3")
	if err := programmed(t, f, podA, podB); err != nil {
		t.Fatal(err)
	}
	return f, table, others
}

// refuse makes the table quarantine the object from the next Apply on, and
// waits for that.
func refuse(t *testing.T, f *fixture, table *drivertest.Table, r tables.Refusal) control.Quarantined {
	t.Helper()
	if r.NextTry.IsZero() {
		r.NextTry = time.Now().Add(time.Hour)
	}
	r.Since = time.Now()
	table.Set(func() { table.Refused = []tables.Refusal{r} })
	f.Source.Send(true, drivertest.PodOn("elsewhere", "node2"))
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	q := f.Status().Quarantined
	if len(q) != 1 {
		t.Fatalf("quarantined %+v", q)
	}
	return q[0]
}

var (
	webID     = model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "x", Name: "web"}
	webOrigin = tables.OfPolicy{ID: webID, Direction: model.Ingress}
)

// refusedWeb is the refusal of the chain of policy web. Its name says nothing.
func refusedWeb() tables.Refusal {
	return tables.Refusal{Object: "chain", Name: "c1", Origin: webOrigin, Reason: "too big", Closed: []string{"c1"}, ClosedOf: []tables.Origin{webOrigin}}
}

func endpoint(t *testing.T, f *fixture, id model.PodID) control.Endpoint {
	t.Helper()
	all := f.Status().Endpoints
	i := slices.IndexFunc(all, func(e control.Endpoint) bool { return e.Namespace == id.Namespace && e.Name == id.Name })
	if i < 0 {
		t.Fatalf("no endpoint %s in %+v", id, all)
	}
	return all[i]
}

func TestRefusedPolicyClosesItsPods(t *testing.T) {
	log := &drivertest.LogBuffer{}
	f, table, _ := startQuarantine(t, log)
	refused := refusedWeb()
	refused.Rule, refused.Reason = "rule 2", "the kernel refuses it: invalid argument"
	q := refuse(t, f, table, refused)
	if len(q.Owners) != 1 || q.Owners[0].String() != "networkpolicy/x/web" || !slices.Equal(q.Pods, []string{"x/a"}) {
		t.Errorf("quarantined %+v", q)
	}
	const want = "networkpolicy/x/web is quarantined: the kernel refuses it: invalid argument"
	if e := endpoint(t, f, podA); e.State != control.EndpointClosed || e.Reason != want {
		t.Errorf("endpoint %+v", e)
	}
	if e := endpoint(t, f, podB); e.State != control.EndpointProgrammed || e.Reason != "" {
		t.Errorf("a pod without the policy: %+v", e)
	}
	if err := programmed(t, f, podA, podB); err == nil || !strings.Contains(err.Error(), "pod x/a is closed: "+want) {
		t.Errorf("waiting for a closed pod: %v", err)
	}
	if err := programmed(t, f, podB); err != nil {
		t.Errorf("waiting for another pod: %v", err)
	}
	p := f.Status().Problems
	if len(p) != 1 || p[0].Source != "web.yaml" || p[0].Object.Name != "web" || !strings.Contains(p[0].Reason, "x/a") {
		t.Errorf("problems %v", p)
	}
	table.Set(func() { table.Refused = nil })
	f.Source.Send(true, drivertest.PodOn("elsewhere", "node1"))
	if err := programmed(t, f, podA); err != nil {
		t.Errorf("after the quarantine: %v", err)
	}
	if n := len(log.Lines("not quarantined any more")); n != 1 {
		t.Errorf("the end was logged %d times", n)
	}
}

func TestQuarantineIsRetriedAloneAndLoggedOnce(t *testing.T) {
	log := &drivertest.LogBuffer{}
	f, table, others := startQuarantine(t, log)
	attempts := 0
	table.Set(func() {
		table.OnApply = func() {
			attempts++
			web := refusedWeb()
			web.Attempts, web.NextTry = attempts, time.Now().Add(20*time.Millisecond)
			// The other one is tried again only when it changes.
			table.Refused = []tables.Refusal{
				web,
				{Object: "policy", Name: "wide", Reason: "too many rules"},
			}
		}
	})
	f.Source.Send(true, drivertest.PodOn("elsewhere", "node2"))
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	ran := len(others.Log())
	eventually.True(t, "the object is tried again and again", func() bool { q := f.Status().Quarantined; return len(q) == 2 && q[0].Attempts > 4 })
	if now := len(others.Log()); now != ran {
		t.Errorf("other stages ran %d times meanwhile", now-ran)
	}
	if n := len(log.Lines("an object is quarantined")); n != 2 {
		t.Errorf("logged %d times, want once for each object", n)
	}
}

func TestOwnersOfQuarantinedObjects(t *testing.T) {
	f, table, _ := startQuarantine(t, &drivertest.LogBuffer{})
	list := tables.OfList{Identity: rules.AppliedIdentity(model.Ingress, model.Applied{NetworkPolicies: []model.PolicyID{webID}})}
	addresses := func(prefix string) tables.Origin { return tables.OfAddresses{Prefix: netip.MustParsePrefix(prefix)} }
	of := func(all ...tables.Origin) []tables.Origin { return all }
	var group model.Group
	if err := f.queue.ask(t.Context(), func() {
		for _, g := range f.cluster.Model().Groups {
			group = g
		}
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name                string
		refused             tables.Refusal
		owners, description string
		pods                string
	}{
		{
			"set",
			tables.Refusal{Object: "set", Origin: tables.OfGroup{ID: group.ID}, ClosedOf: of(webOrigin)},
			"networkpolicy/x/web", group.Description, "x/a",
		},
		{"list of policies", tables.Refusal{Object: "chain", Origin: list, ClosedOf: of(list)}, "pod/x/a", "list of policies", "x/a"},
		{"static chain", tables.Refusal{Object: "chain", Origin: tables.OfEveryPod{}, ClosedOf: of(tables.OfEveryPod{})}, "", "every pod", "x/a x/b"},
		{"entry", tables.Refusal{Object: "map", Origin: addresses("10.10.0.3/32")}, "pod/x/b", "", "x/b"},
		{"chain of a dispatch tree", tables.Refusal{Object: "chain", Origin: addresses("10.10.0.2/31"), ClosedOf: of(addresses("10.10.0.2/31"))}, "pod/x/a pod/x/b", "", "x/a x/b"},
		{"unused chain", tables.Refusal{Object: "chain", ClosedOf: of(nil)}, "", "", ""},
		{"policy that is gone", tables.Refusal{Object: "chain", Origin: tables.OfPolicy{ID: model.PolicyID{Name: "gone"}}}, "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.refused.Reason = c.name
			q := refuse(t, f, table, c.refused)
			owners := strings.Join(texts(q.Owners, model.ObjectRef.String), " ")
			if owners != c.owners || !strings.Contains(q.Description, c.description) || strings.Join(q.Pods, " ") != c.pods {
				t.Errorf("owners %q, description %q, pods %q", owners, q.Description, q.Pods)
			}
		})
	}
}

// What the switch refuses is named by the policy it was made of, and by the pods
// that it closes.
func TestRefusedFlowsAreNamedByPolicies(t *testing.T) {
	f, table, _ := startQuarantine(t, &drivertest.LogBuffer{})
	q := refuse(t, f, table, tables.Refusal{
		Object: policyflows.Object, Name: "x/web", Rule: "ingress", Origin: webOrigin, Reason: "rule networkpolicy/x/web ingress 0: table full",
	}.ClosingPods([]model.PodID{podA, {Namespace: "x", Name: "gone"}}))
	if len(q.Owners) != 1 || q.Owners[0].String() != "networkpolicy/x/web" || !slices.Equal(q.Pods, []string{"x/a"}) {
		t.Errorf("%+v", q)
	}
	if err := programmed(t, f, podA); err == nil || !strings.Contains(err.Error(), "networkpolicy/x/web is quarantined") {
		t.Errorf("pod a: %v", err)
	}
	if err := programmed(t, f, podB); err != nil {
		t.Errorf("pod b: %v", err)
	}
}
