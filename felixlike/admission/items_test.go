package admission

import (
	"fmt"
	"slices"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/internal/isolate"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// TestCostOfLogging: a policy that logs costs twice its alternatives, except in the switch.
func TestCostOfLogging(t *testing.T) {
	p := &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: make([]networkingv1.NetworkPolicyPort, 100)}}}}
	without, inSwitch := costOf(p, false), costOf(p, true)
	for value, factor := range map[string]time.Duration{"true": 2, "allow": 2, "false": 1} {
		p.Annotations = map[string]string{model.LogAnnotation: value}
		if got := costOf(p, false); got != factor*without {
			t.Errorf("%s: %s, %s without", value, got, without)
		}
		if got := costOf(p, true); got != inSwitch {
			t.Errorf("%s in the switch: %s, %s without", value, got, inSwitch)
		}
	}
}

// TestPartialTurns: in these states the engine does not have a policy as written.
func TestPartialTurns(t *testing.T) {
	p, older := &networkingv1.NetworkPolicy{}, &networkingv1.NetworkPolicy{}
	for _, c := range []struct {
		item item
		want bool
	}{
		{item{state: waiting, wanted: p}, true},
		{item{state: waiting, submitted: p}, true},
		{item{state: newRules, wanted: p, submitted: older}, true},
		{item{state: unproven, wanted: p, record: record{}}, true},
		{item{state: refused, wanted: p}, true},
		{item{state: deferred, wanted: p}, true},
		{item{state: newRules, wanted: p, submitted: p}, false},
		{item{state: settled, wanted: p, submitted: p}, false},
	} {
		if got := c.item.partial(); got != c.want {
			t.Errorf("state %d: %v", c.item.state, got)
		}
	}
}

// The memory of deleted policies is bounded, in number and in time. Refused ones stay longest.
func TestOffendersAreForgotten(t *testing.T) {
	now := time.Now()
	o := refusalHistory{}
	id := func(i int) model.PodID { return model.PodID{Namespace: "x", Name: fmt.Sprint(i)} }
	o.remember(&item{id: id(-1), state: refused, record: record{Retry: isolate.Retry{Attempts: 3}}}, now)
	for i := range maxPastRefusals + 10 {
		now = now.Add(time.Millisecond)
		o.remember(&item{id: id(i), state: unproven}, now)
	}
	if len(o) != maxPastRefusals {
		t.Errorf("%d are remembered", len(o))
	}
	if _, ok := o.recall(id(10), now); ok {
		t.Error("the oldest is not forgotten")
	}
	if one, ok := o.recall(id(-1), now); !ok || one.Attempts != 3 {
		t.Errorf("of the refused one is left: %+v, %v", one, ok)
	}
	if _, ok := o.recall(id(-1), now); ok {
		t.Error("it is still there after it has come back")
	}
	if _, ok := o.recall(id(100), now.Add(refusalMemory)); ok {
		t.Error("it is remembered too long")
	}
	o.remember(&item{id: id(0), state: unproven}, now.Add(refusalMemory))
	if len(o) != 1 {
		t.Errorf("%d are remembered in the end", len(o))
	}
}

// TestOrderOfTieredTurns: policies of the whole cluster come before those of namespaces. A pod waits for neither those of other namespaces nor those that came or changed after
// the wait began, so nobody can keep the pods of others from starting.
func TestOrderOfTieredTurns(t *testing.T) {
	c := cluster.New(cluster.Config{Node: "node1"}, func() []string { return nil })
	ts := newTieredAdmission(c, nil)
	wait := func(revision, queued uint64, object model.ObjectRef) {
		ts.items[object] = &tieredItem{revision: revision, queued: queued, submit: func() {}}
	}
	own, other, whole := model.ObjectRef{Kind: "NetworkPolicy", Namespace: "x", Name: "own"}, model.ObjectRef{Kind: "NetworkPolicy", Namespace: "y", Name: "other"}, model.ObjectRef{Kind: "ClusterNetworkPolicy", Name: "whole"}
	wait(1, 1, other)
	wait(2, 2, own)
	wait(5, 3, whole)
	if got := ts.queue(); !slices.Equal(got, []model.ObjectRef{whole, other, own}) {
		t.Errorf("order %v", got)
	}
	for _, c := range []struct {
		revision  uint64
		namespace string
		want      model.ObjectRef
	}{{5, "x", whole}, {4, "x", own}, {1, "x", model.ObjectRef{}}, {4, "y", other}, {4, "z", model.ObjectRef{}}, {9, "z", whole}} {
		if got, waits := ts.before(c.revision, c.namespace); got != c.want || waits != (c.want != model.ObjectRef{}) {
			t.Errorf("a pod of %s at revision %d waits for %s, want %s", c.namespace, c.revision, got, c.want)
		}
	}
}

// TestDeadlinesGrowWithTheRules: a node with many rules needs longer, and more rules than a node can have get no more time.
func TestDeadlinesGrowWithTheRules(t *testing.T) {
	s := newProbation()
	for _, c := range []struct {
		rules        int
		full, change time.Duration
	}{
		{0, time.Minute, 10 * time.Second},
		{10_000, time.Minute, 10 * time.Second},
		{25_000, 2 * time.Minute, 25 * time.Second},
		{50_000, 220 * time.Second, 50 * time.Second},
		{1_000_000, 5 * time.Minute, 70 * time.Second},
	} {
		tracked := cluster.NewModel()
		half := make([]model.Rule, c.rules/2)
		tracked.OnUpdate(model.PolicyUpdate{Policy: &model.Policy{Ingress: half, Egress: half}})
		full := s.limit(time.Minute, false, tracked.Rules())
		if change := s.limit(time.Minute, true, tracked.Rules()); full != c.full || change != c.change {
			t.Errorf("%d rules: %s for all, %s for a change; want %s and %s", c.rules, full, change, c.full, c.change)
		}
	}
}

// TestDeadlineOfATrial: a trial that a change caused has no longer than others.
func TestDeadlineOfATrial(t *testing.T) {
	trials, one := newProbation(), &item{record: record{Retry: isolate.Retry{Attempts: 2}}}
	trials.running = []*item{one}
	if got := trials.limit(time.Minute, true, 0); got != 40*time.Second {
		t.Errorf("a trial has %s", got)
	}
	one.touched = true
	if got := trials.limit(time.Minute, true, 0); got != changeTimeout {
		t.Errorf("an early trial has %s", got)
	}
}

// inForce is a backend that has programmed everything.
type inForce struct {
	cluster *cluster.Cluster
	of      *Queue
}

func (f *inForce) Runs() (Runs, bool) {
	return Runs{Applied: true, Programmed: f.cluster.Model().Revision()}, true
}
func (f *inForce) InSwitch() bool              { return false }
func (f *inForce) Quarantine([]tables.Refusal) {}
func (f *inForce) Flush() {
	for _, u := range f.cluster.Engine().Flush() {
		f.cluster.OnUpdate(u)
	}
	f.of.Flushed()
}

// TestRulesOfLargePoliciesElsewhere: the engine has the rules of a large policy only where it applies.
func TestRulesOfLargePoliciesElsewhere(t *testing.T) {
	c := cluster.New(cluster.Config{Node: "node1"}, func() []string { return nil })
	b := &inForce{cluster: c}
	b.of = New(c, b)
	check := func(want itemState, events ...datastore.Event) {
		t.Helper()
		for _, e := range events {
			b.of.OnEvent(e, c.OnEvent(e))
		}
		b.Flush()
		for range 5 {
			b.of.Begin()
			b.of.Ended(nil, c.Model().Revision(), 0)
		}
		for _, one := range b.of.items {
			if one.state != want || (one.submitted == nil) != (want == notLocal) {
				t.Errorf("%s: state %d, want %d", one.id, one.state, want)
			}
		}
		if len(b.of.items) != 5 {
			t.Errorf("%d items", len(b.of.items))
		}
	}
	large := func(i int) datastore.Event {
		p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: fmt.Sprint("large-", i)}}
		p.Spec.PodSelector.MatchLabels = map[string]string{"name": "c"}
		p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: make([]networkingv1.NetworkPolicyPort, 5000)}}
		for i := range p.Spec.Ingress[0].Ports {
			port := intstr.FromInt32(int32(i + 1))
			p.Spec.Ingress[0].Ports[i].Port = &port
		}
		return datastore.NetworkPolicySet{Policy: p}
	}
	pod := func(label string) datastore.Event {
		e := drivertest.PodOn("a", "node1").(datastore.PodSet)
		e.Pod.Labels = map[string]string{"name": label}
		return e
	}
	staged := func(i int) datastore.Event {
		e := large(i).(datastore.NetworkPolicySet)
		e.Policy.Annotations = map[string]string{model.EnforceAnnotation: "no"}
		return e
	}
	check(notLocal, drivertest.Node("node1", "10.10.0.0/24"), pod("a"), large(0), large(1), large(2), large(3), large(4))
	check(settled, pod("c"))
	check(notLocal, pod("a"))
	// Of a staged policy nothing is programmed: it does not wait, and the engine keeps its rules.
	for i := range 5 {
		b.of.OnEvent(staged(i), c.OnEvent(staged(i)))
	}
	b.Flush()
	b.of.Begin()
	b.of.Ended(nil, c.Model().Revision(), 0)
	if n := len(b.of.items); n != 0 {
		t.Errorf("%d staged policies wait, or have lost their rules", n)
	}
}
