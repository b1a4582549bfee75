// Package admission decides when the policy engine gets a changed policy, and quarantines those that make an apply miss its deadline. Each large
// or new NetworkPolicy is in one state:
//
//	not local --> waiting --> new rules --> settled      the engine has the rules; an apply with them succeeded
//	               ^  |        ^  |  |
//	               |  v        |  |  +-- deadline missed with others --> unproven
//	            deferred       |  +----- deadline missed alone --------> refused
//	                           +--------- tried again: at once, or after a wait
//
// A change of a waiting policy leaves it where it is. One that is over the node's budget is deferred. docs/design/quarantine.md has the invariants.
package admission

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/tables"
)

const (
	// sliceCost bounds the cost (costOf) of the changes of NetworkPolicies that one apply
	// programs. One change may cost more.
	sliceCost = 500 * time.Millisecond
	// largeCost is the cost from which a policy is large: the engine gets its rules only on
	// nodes where it applies, and only in its turn.
	largeCost = 50 * time.Millisecond
	// nodeCost bounds the cost of the large policies that apply on a node.
	nodeCost = 10 * time.Second
)

// Queue decides when the policy engine gets a changed policy, so that the objects of
// one tenant delay the changes of others by one slice at most.
//
// Small changes go to the engine at once. Large ones, and small ones beyond a slice, wait:
// one slice a cycle, the cheapest first, and every second cycle without any if other changes
// wait. Every second slice begins with the policy that has waited longest. Meanwhile the old
// version of a changed policy stays in force. For a new policy, the engine has a policy of the
// same pods without rules, so these pods are closed.
//
// The loop of the driver calls all methods.
type Queue struct {
	cluster   *cluster.Cluster
	dataplane Dataplane
	// tiered has the large policies of the ordered tiers.
	tiered *tieredAdmission
	// items are the policies that are large, that wait, or that no apply has programmed yet.
	items map[model.PodID]*item
	// spent is the cost of the policies that the engine got since the last cycle began.
	spent time.Duration
	// yielded is set if the last cycle took no policy that waits.
	yielded bool
	// queued counts the policies that began to wait. aged is set if the last slice began with
	// the policy that had waited longest.
	queued uint64
	aged   bool
	// withinBudget is set once the sum of the large policies was checked after its last change.
	withinBudget bool
	probation    probation
	// waiting are the policies that keep their pods pending.
	waiting map[model.PolicyID]bool
}

// Dataplane is what a Queue sees of the backend in force.
type Dataplane interface {
	// Runs returns the runs of the policy stage, and false if there is no such stage.
	Runs() (Runs, bool)
	// InSwitch reports whether the switch enforces policy, where other parts of a policy cost.
	InSwitch() bool
	// Flush hands the engine's updates to the managers.
	Flush()
	// Quarantine takes all policies that the Queue quarantines now.
	Quarantine(refused []tables.Refusal)
}

// Runs says how the runs of the policy stage went.
type Runs struct {
	// Applied is set after a successful run. Failures counts those that failed since then.
	Applied  bool
	Failures int
	// Programmed is the model's revision with which the newest successful run began.
	Programmed uint64
	// Taken is the newest revision that the current run or cycle began with, zero if there is neither.
	Taken uint64
}

// New returns a Queue that keeps no policy back.
func New(c *cluster.Cluster, d Dataplane) *Queue {
	ts := &Queue{cluster: c, dataplane: d, tiered: newTieredAdmission(c, d), items: map[model.PodID]*item{}, waiting: map[model.PolicyID]bool{}, probation: newProbation()}
	c.Model().Await(func(id model.PolicyID) bool { return ts.waiting[id] })
	return ts
}

// SetClock sets the clock by which refused policies are tried again.
func (ts *Queue) SetClock(now func() time.Time) { ts.probation.now = now }

// OnEvent gives the policy engine a change of a policy, now or in its turn. before is the NetworkPolicy before, or nil.
func (ts *Queue) OnEvent(e datastore.Event, before *networkingv1.NetworkPolicy) {
	engine := ts.cluster.Engine()
	switch e := e.(type) {
	case datastore.NetworkPolicySet:
		ts.set(e.Policy, before, e.Source)
	case datastore.NetworkPolicyClosed:
		// The datastore reports why.
		ts.closed(model.PodID{Namespace: e.Namespace, Name: e.Name})
		engine.SetClosedNetworkPolicy(e.Namespace, e.Name, e.PodSelector)
	case datastore.NetworkPolicyDeleted:
		ts.remove(model.PodID{Namespace: e.Namespace, Name: e.Name})
	case datastore.ClusterNetworkPolicySet:
		object := model.ObjectRef{Kind: "ClusterNetworkPolicy", Name: e.Policy.Name}
		ts.tiered.set(object, costOfCluster(e.Policy, ts.dataplane.InSwitch()), func() {
			ts.cluster.SetProblems(object, e.Source, engine.SetClusterNetworkPolicy(e.Policy))
		})
	case datastore.ClusterNetworkPolicyDeleted:
		object := model.ObjectRef{Kind: "ClusterNetworkPolicy", Name: e.Name}
		ts.tiered.remove(object)
		engine.DeleteClusterNetworkPolicy(e.Name)
		ts.cluster.SetProblems(object, "", nil)
	case datastore.AntreaSet:
		ts.tiered.set(e.Object.ID().Ref(), costOfAntrea(e.Object, ts.dataplane.InSwitch()), func() { engine.SetAntrea(e.Object) })
	case datastore.AntreaDeleted:
		ts.tiered.remove(e.ID.Ref())
		engine.DeleteAntrea(e.ID)
	}
}

// set takes a new or changed policy. before is its last object, or nil.
func (ts *Queue) set(p, before *networkingv1.NetworkPolicy, source string) {
	id := model.PodID{Namespace: p.Namespace, Name: p.Name}
	t := ts.items[id]
	if t == nil {
		t = &item{id: id, submitted: before}
		ts.probation.created(t)
		ts.items[id] = t
	}
	t.wanted, t.source, t.revision = p, source, ts.cluster.Observed()
	t.cost = costOf(p, ts.dataplane.InSwitch())
	ts.withinBudget = false
	switch {
	case t.state == unproven:
		t.hold(ts.cluster.Engine())
	case t.state == refused:
		ts.probation.changed(t)
		t.hold(ts.cluster.Engine())
	case ts.programming(t):
		// The outcome of the apply is about the rules that the engine has.
	case t.cost < largeCost && !ts.probation.pending() && (ts.spent+t.cost <= sliceCost || !ts.begun()):
		ts.submit(t)
	case t.state == newRules: // begin submits it
	default:
		ts.wait(t)
		t.hold(ts.cluster.Engine())
	}
}

// wait makes a policy wait for its turn.
func (ts *Queue) wait(t *item) {
	if t.state != waiting {
		ts.queued++
		t.queued = ts.queued
	}
	t.state = waiting
}

// programming reports whether the running apply is the first with the rules that the engine
// has.
func (ts *Queue) programming(t *item) bool {
	r, _ := ts.dataplane.Runs()
	return t.state == newRules && t.submittedAt > 0 && t.submittedAt <= r.Taken
}

// begun reports whether the backend has programmed anything. Before that, the engine gets all
// policies at once: the state of an earlier agent stays in force until then.
func (ts *Queue) begun() bool {
	r, _ := ts.dataplane.Runs()
	return r.Applied
}

// remove takes the deletion of a policy.
func (ts *Queue) remove(id model.PodID) {
	t := ts.items[id]
	if t == nil {
		t = &item{id: id}
	}
	t.wanted = nil
	ts.withinBudget = false
	r, _ := ts.dataplane.Runs()
	cost := costOf(t.submitted, ts.dataplane.InSwitch())
	if ts.programming(t) {
		// The outcome of the apply decides whether the policy is tried alone.
		t.cost, t.revision = cost, ts.cluster.Observed()
		return
	}
	if t.state == notLocal || t.state == unproven || t.state == refused || cost < largeCost || r.Failures > 0 {
		// It costs little, or may be the policy that the backend cannot program.
		ts.submit(t)
		return
	}
	t.cost, t.revision = cost, ts.cluster.Observed()
	if t.state != newRules { // else begin submits it
		ts.wait(t)
	}
}

// closed takes a policy that cannot be understood.
func (ts *Queue) closed(id model.PodID) {
	if t := ts.items[id]; t != nil {
		if ts.programming(t) {
			ts.probation.unreadable(t)
		}
		ts.probation.deleted(t)
		delete(ts.items, id)
	}
	ts.cluster.SetProblems(policyOf(id).Object(), "", nil)
}

// submit gives the engine the datastore's object, or its deletion.
func (ts *Queue) submit(t *item) {
	ts.spent += t.cost
	if t.state != newRules {
		t.before = t.submitted
	}
	object := t.policy().Object()
	if t.wanted == nil {
		ts.cluster.Engine().DeleteNetworkPolicy(t.id.Namespace, t.id.Name)
		ts.cluster.SetProblems(object, "", nil)
		ts.probation.deleted(t)
		t.state = settled // the deletion of rules takes no longer than programming them did
		delete(ts.items, t.id)
		return
	}
	ts.cluster.SetProblems(object, t.source, ts.cluster.Engine().SetNetworkPolicy(t.wanted))
	t.submitted, t.state, t.submittedAt, t.tried = t.wanted, newRules, 0, t.cost
}

// Flushed checks, after a flush of the engine, which large policies apply here.
func (ts *Queue) Flushed() {
	for _, t := range ts.items {
		if t.state == newRules { // at the start, all policies of the cluster
			if t.submittedAt == 0 {
				t.submittedAt = ts.cluster.Model().Revision()
			}
			continue
		}
		local := ts.cluster.Model().Policies[t.policy()] != nil
		switch {
		case t.state == notLocal && local:
			ts.wait(t)
			t.revision, ts.withinBudget = ts.cluster.Observed(), false
		case !local && t.wanted != nil && t.cost >= largeCost && (t.state == settled || t.state == waiting || t.state == deferred):
			// The engine need not keep the rules of a policy that applies to no pod here.
			t.admit(ts.cluster.Engine(), nil, notLocal)
			ts.withinBudget = false
		}
	}
	ts.report()
	ts.tiered.flushed()
}

// report updates the policies that wait, and the quarantined ones.
func (ts *Queue) report() {
	clear(ts.waiting)
	for _, t := range ts.items {
		t.delayed = t.waits() || t.delayed && t.state == newRules
		if t.delayed {
			ts.waiting[t.policy()] = true
		}
	}
	ts.dataplane.Quarantine(ts.refusals(ts.cluster.Model()))
}

// Partial returns the policies of which the engine does not have the rules as written.
func (ts *Queue) Partial() map[model.PolicyID]bool {
	all := map[model.PolicyID]bool{}
	for _, t := range ts.items {
		if t.partial() {
			all[t.policy()] = true
		}
	}
	return all
}

// Begin gives the engine the policies that the next cycle is to program.
func (ts *Queue) Begin() {
	ts.begin()
	if ts.tiered.begin(ts.spent) {
		ts.dataplane.Flush()
	}
}

func (ts *Queue) begin() {
	ts.spent = 0
	r, ok := ts.dataplane.Runs()
	if len(ts.items) == 0 || !ok {
		return
	}
	defer ts.dataplane.Flush()
	others := ts.cluster.Model().Revision() > r.Programmed
	ts.enforceBudget()
	for _, t := range ts.items {
		// No apply runs now. A deleted policy may be the one that the backend cannot program.
		if t.outdated() || t.wanted == nil && t.state == waiting && r.Failures > 0 {
			ts.submit(t)
		}
	}
	first := !ts.begun()
	if !first && (r.Failures > 0 || ts.probation.begin(ts)) {
		return
	}
	var queue []*item
	sum := time.Duration(0)
	for _, t := range ts.items {
		if t.state == waiting {
			queue = append(queue, t)
			sum += t.cost
		}
	}
	if len(queue) == 0 {
		return
	}
	if ts.yielded = others && !ts.yielded && !first && len(queue) > 1 && sum > sliceCost; ts.yielded {
		return
	}
	slices.SortFunc(queue, (*item).compare)
	if ts.aged = !ts.aged; ts.aged {
		oldest := slices.MinFunc(queue, func(a, b *item) int { return cmp.Compare(a.queued, b.queued) })
		i := slices.Index(queue, oldest)
		queue = slices.Insert(slices.Delete(queue, i, i+1), 0, oldest)
	}
	for i, t := range queue {
		if i > 0 && ts.spent+t.cost > sliceCost && !first {
			break
		}
		ts.submit(t)
	}
}

// Large reports whether the object is a large policy.
func (ts *Queue) Large(o model.ObjectRef) bool {
	t := ts.items[model.PodID{Namespace: o.Namespace, Name: o.Name}]
	return o.Kind == "NetworkPolicy" && t != nil && t.cost >= largeCost
}

// Pending reports whether a cycle has something to do here.
func (ts *Queue) Pending() bool {
	if ts.tiered.waits() {
		return true
	}
	now := ts.probation.now()
	for _, t := range ts.items {
		if t.waits() || t.state == unproven || t.state == refused && t.Due(now) {
			return true
		}
	}
	return false
}

// Reached reports whether no policy of this or an earlier revision of the datastore waits.
func (ts *Queue) Reached(revision uint64) bool {
	for _, t := range ts.items {
		if t.delayed && t.revision <= revision {
			return false
		}
	}
	return ts.tiered.reached(revision)
}

// Waiting names the policies of ordered tiers that wait for their turn.
func (ts *Queue) Waiting() []model.Problem { return ts.tiered.waiting() }

// Before returns a policy of an ordered tier that waits since a revision of the datastore, or an earlier one, and can select pods of a namespace.
func (ts *Queue) Before(revision uint64, namespace string) (model.ObjectRef, bool) {
	return ts.tiered.before(revision, namespace)
}

// enforceBudget bounds the sum of the large policies that apply here. While it is too high, the
// namespace with the highest sum loses its newest one.
func (ts *Queue) enforceBudget() {
	if ts.withinBudget {
		return
	}
	ts.withinBudget = true
	sums, all := map[string]time.Duration{}, map[string][]*item{}
	total := time.Duration(0)
	for _, t := range ts.items {
		if t.wanted != nil && t.cost >= largeCost && t.state != notLocal {
			sums[t.id.Namespace] += t.cost
			all[t.id.Namespace] = append(all[t.id.Namespace], t)
			total += t.cost
		}
	}
	for _, some := range all {
		slices.SortFunc(some, (*item).olderFirst)
	}
	over := map[*item]bool{}
	for total > nodeCost {
		most := ""
		for namespace, sum := range sums {
			if most == "" || sum > sums[most] || sum == sums[most] && namespace > most {
				most = namespace
			}
		}
		last := len(all[most]) - 1
		t := all[most][last]
		all[most] = all[most][:last]
		over[t] = true
		sums[most] -= t.cost
		total -= t.cost
	}
	for _, t := range ts.items {
		switch {
		case over[t] && t.state != deferred:
			t.why = fmt.Sprintf("the large policies of this node would take more than %s to program, and its namespace has the most of them", nodeCost)
			t.Since = time.Now()
			t.admit(ts.cluster.Engine(), nil, deferred)
		case !over[t] && t.state == deferred:
			ts.wait(t)
		}
	}
}

// refusals lists the policies that the agent itself quarantines.
func (ts *Queue) refusals(tr *cluster.Model) []tables.Refusal {
	var out []tables.Refusal
	for _, t := range ts.items {
		if t.state != deferred && t.Attempts == 0 {
			continue
		}
		id := t.policy()
		r := tables.Refusal{Object: policyflows.Object, Name: id.String(), Origin: tables.OfPolicy{ID: id}, Reason: t.why, Since: t.Since, NextTry: t.Next, Attempts: max(1, t.Attempts)}
		var pods []model.PodID
		for pod, e := range tr.Endpoints {
			if slices.Contains(e.Ingress.NetworkPolicies, id) || slices.Contains(e.Egress.NetworkPolicies, id) {
				pods = append(pods, pod)
			}
		}
		slices.SortFunc(pods, model.PodID.Compare)
		out = append(out, r.ClosingPods(pods))
	}
	slices.SortFunc(out, func(a, b tables.Refusal) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
