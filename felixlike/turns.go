package felixlike

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/tables"
)

const (
	// sliceCost bounds what changes of NetworkPolicies cost that one apply programs, by
	// costOf. One change may cost more.
	sliceCost = 500 * time.Millisecond
	// largeCost is the cost from which a policy is large: the engine learns its rules only
	// where it applies, and only in its turn.
	largeCost = 50 * time.Millisecond
	// nodeCost bounds what the large policies cost that apply on a node.
	nodeCost = 10 * time.Second
	// turnsStage is what status calls the one that sets such policies aside.
	turnsStage = "agent"
)

// turns decides when the policy engine learns of a changed NetworkPolicy, so that the
// objects of one tenant delay the changes of others by one slice at most.
//
// Small changes go to the engine at once. Large ones, and small ones beyond a slice, wait:
// one slice a pass, the cheapest first, and every second pass without any if other changes
// wait. Every second slice begins with the one that has waited longest. Meanwhile a changed policy stays in force as it was, and in the place of a new one
// the engine has a policy of the same pods without rules, so these pods are closed.
//
// The loop of the Driver calls all methods.
type turns struct {
	// items are the policies that are large, wait, or are not yet known to be programmed.
	items map[model.PodID]*turn
	// spent is the cost of what the engine learned since the last pass began.
	spent time.Duration
	// yielded tells that the last pass took nothing that waits.
	yielded bool
	// queued counts what began to wait; aged tells that the last slice began with the one
	// that had waited longest.
	queued uint64
	aged   bool
	// weighed tells that the sum of the large policies was judged since it changed.
	weighed bool
	trials  trials
	// waiting are the policies whose pods are pending because of them.
	waiting map[model.PolicyID]bool
}

// turn is one policy.
type turn struct {
	id    model.PodID
	state turnState
	// wanted is the datastore's object, nil after its deletion; told is the object whose
	// rules the engine has, or nil.
	wanted, told *networkingv1.NetworkPolicy
	source       string
	// cost is that of wanted, or of told after a deletion.
	cost time.Duration
	// queued orders those that wait by the time since which they do.
	queued uint64
	// revision is the datastore's with wanted.
	revision uint64
	// delayed tells that the policy had to wait, and has not been programmed since.
	delayed bool
	trial
}

type turnState uint8

const (
	// settled: the backend has programmed it.
	settled turnState = iota
	// elsewhere: it is large and applies to no pod of this node.
	elsewhere
	// waiting for its turn.
	waiting
	// fresh: the engine has its rules, and no apply that succeeded had them.
	fresh
	// suspected: it took part in an apply that missed its deadline, and will be tried.
	suspected
	// refused: it was tried alone and the apply missed its deadline.
	refused
	// excess: it is beyond nodeCost.
	excess
)

func newTurns() *turns {
	return &turns{items: map[model.PodID]*turn{}, waiting: map[model.PolicyID]bool{}, trials: newTrials()}
}

func (t *turn) policy() model.PolicyID {
	return model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: t.id.Namespace, Name: t.id.Name}
}

// outdated reports whether the datastore has changed a policy again before an apply that
// succeeded had its rules.
func (t *turn) outdated() bool { return t.state == fresh && t.wanted != t.told }

func (t *turn) compare(o *turn) int {
	return cmp.Or(cmp.Compare(t.cost, o.cost), t.id.Compare(o.id))
}

// set takes a policy that is new or has changed. before is its last object, or nil.
func (ts *turns) set(d *Driver, p, before *networkingv1.NetworkPolicy, source string) {
	id := model.PodID{Namespace: p.Namespace, Name: p.Name}
	t := ts.items[id]
	if t == nil {
		t = &turn{id: id, told: before}
		ts.trials.created(t)
		ts.items[id] = t
	}
	t.wanted, t.source, t.revision = p, source, d.observed
	t.cost = costOf(p, d.backend.Place() == backend.InSwitch)
	ts.weighed = false
	switch {
	case t.state == suspected:
		t.hold(d)
	case t.state == refused:
		ts.trials.changed(t)
		t.hold(d)
	case ts.programming(d, t):
		// The outcome of the apply is about the rules that the engine has.
	case t.cost < largeCost && !ts.trials.pending() && (ts.spent+t.cost <= sliceCost || !ts.begun(d)):
		ts.tell(d, t)
	case t.state == fresh: // begin tells it
	default:
		ts.wait(t)
		t.hold(d)
	}
}

// wait has a policy wait for its turn.
func (ts *turns) wait(t *turn) {
	if t.state != waiting {
		ts.queued++
		t.queued = ts.queued
	}
	t.state = waiting
}

// programming reports whether an apply that is under way is the first with the rules that
// the engine has.
func (ts *turns) programming(d *Driver, t *turn) bool {
	r := d.decides()
	if r == nil || t.state != fresh || t.noted == 0 {
		return false
	}
	return r.running && t.noted <= r.noted || d.pass != nil && t.noted <= d.pass.noted
}

// begun reports whether the backend has programmed anything. Before that, all is told: what
// an earlier agent has left stays in force until then.
func (ts *turns) begun(d *Driver) bool {
	r := d.decides()
	return r != nil && r.applied
}

// remove takes the deletion of a policy.
func (ts *turns) remove(d *Driver, id model.PodID) {
	t := ts.items[id]
	if t == nil {
		t = &turn{id: id}
	}
	t.wanted = nil
	ts.weighed = false
	r := d.decides()
	cost := costOf(t.told, d.backend.Place() == backend.InSwitch)
	if ts.programming(d, t) {
		// The outcome of the apply tells whether the policy is suspected.
		t.cost, t.revision = cost, d.observed
		return
	}
	if t.state == elsewhere || t.state == suspected || t.state == refused || cost < largeCost || r != nil && r.failures > 0 {
		// It costs little, or may be what the backend cannot program.
		ts.tell(d, t)
		return
	}
	t.cost, t.revision = cost, d.observed
	if t.state != fresh { // else begin tells it
		ts.wait(t)
	}
}

// closed takes a policy that cannot be understood.
func (ts *turns) closed(d *Driver, id model.PodID) {
	if t := ts.items[id]; t != nil {
		if ts.programming(d, t) {
			ts.trials.unreadable(t)
		}
		ts.trials.deleted(t)
		delete(ts.items, id)
	}
	d.problems.setObject(ref("NetworkPolicy", id.Namespace, id.Name), "", nil)
}

// hold has the engine keep the rules that it has of the policy. If it has none, it gets a
// policy without rules.
func (t *turn) hold(d *Driver) {
	if t.told == nil && t.wanted != nil {
		d.engine.SetNetworkPolicy(withoutRules(t.wanted))
	}
}

// withoutRules returns a policy that isolates the same pods and allows nothing.
func withoutRules(p *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
	closed := &networkingv1.NetworkPolicy{ObjectMeta: p.ObjectMeta}
	closed.Spec.PodSelector, closed.Spec.PolicyTypes = p.Spec.PodSelector, p.Spec.PolicyTypes
	if len(closed.Spec.PolicyTypes) == 0 {
		closed.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) > 0 {
			closed.Spec.PolicyTypes = append(closed.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	return closed
}

// tell has the engine learn what the datastore has.
func (ts *turns) tell(d *Driver, t *turn) {
	ts.spent += t.cost
	if t.state != fresh {
		t.before = t.told
	}
	object := ref("NetworkPolicy", t.id.Namespace, t.id.Name)
	if t.wanted == nil {
		d.engine.DeleteNetworkPolicy(t.id.Namespace, t.id.Name)
		d.problems.setObject(object, "", nil)
		ts.trials.deleted(t)
		t.state = settled // to delete what was programmed takes no longer than that did
		delete(ts.items, t.id)
		return
	}
	d.problems.setObject(object, t.source, d.engine.SetNetworkPolicy(t.wanted))
	t.told, t.state, t.noted, t.tried = t.wanted, fresh, 0, t.cost
}

// take has the engine learn the rules of an earlier object, or none.
func (t *turn) take(d *Driver, earlier *networkingv1.NetworkPolicy, state turnState) {
	t.told, t.state = earlier, state
	if earlier != nil {
		d.engine.SetNetworkPolicy(earlier)
		return
	}
	t.hold(d)
}

// flushed looks which large policies apply here, after the engine has told.
func (ts *turns) flushed(d *Driver) {
	for _, t := range ts.items {
		local := d.tracker.policies[t.policy()] != nil
		switch {
		case t.state == fresh && t.noted == 0:
			t.noted = d.tracker.noted
		case t.state == elsewhere && local:
			ts.wait(t)
			t.revision, ts.weighed = d.observed, false
		case !local && t.wanted != nil && t.cost >= largeCost && (t.state == settled || t.state == waiting || t.state == excess):
			// The engine need not keep what applies to nothing here.
			t.take(d, nil, elsewhere)
			ts.weighed = false
		}
	}
	ts.report(d)
}

// report tells which policies wait, and which are set aside.
func (ts *turns) report(d *Driver) {
	clear(ts.waiting)
	for _, t := range ts.items {
		t.delayed = t.waits() || t.delayed && t.state == fresh
		if t.delayed {
			ts.waiting[t.policy()] = true
		}
	}
	d.quarantine.set(d.log, turnsStage, ts.refusals(d.tracker))
}

func (t *turn) waits() bool {
	return t.state == waiting || t.outdated() || t.state == suspected && t.attempts == 0
}

// begin has the engine learn what the pass that begins is to program.
func (ts *turns) begin(d *Driver) {
	ts.spent = 0
	r := d.decides()
	if len(ts.items) == 0 || r == nil {
		return
	}
	defer d.flush()
	others := d.tracker.noted > r.programmed
	ts.weigh(d)
	for _, t := range ts.items {
		// No apply is under way. What is deleted may be what the backend cannot program.
		if t.outdated() || t.wanted == nil && t.state == waiting && r.failures > 0 {
			ts.tell(d, t)
		}
	}
	first := !ts.begun(d)
	if !first && (r.failures > 0 || ts.trials.begin(d, ts)) {
		return
	}
	var queue []*turn
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
	slices.SortFunc(queue, (*turn).compare)
	if ts.aged = !ts.aged; ts.aged {
		oldest := slices.MinFunc(queue, func(a, b *turn) int { return cmp.Compare(a.queued, b.queued) })
		i := slices.Index(queue, oldest)
		queue = slices.Insert(slices.Delete(queue, i, i+1), 0, oldest)
	}
	for i, t := range queue {
		if i > 0 && ts.spent+t.cost > sliceCost && !first {
			break
		}
		ts.tell(d, t)
	}
}

// large reports whether the object is a large policy.
func (ts *turns) large(o model.ObjectRef) bool {
	t := ts.items[model.PodID{Namespace: o.Namespace, Name: o.Name}]
	return o.Kind == "NetworkPolicy" && t != nil && t.cost >= largeCost
}

// pending reports whether a pass has something to do here.
func (ts *turns) pending() bool {
	now := ts.trials.now()
	for _, t := range ts.items {
		if t.waits() || t.state == suspected || t.state == refused && !now.Before(t.next) {
			return true
		}
	}
	return false
}

// reached reports whether nothing waits of a revision of the datastore.
func (ts *turns) reached(revision uint64) bool {
	for _, t := range ts.items {
		if t.delayed && t.revision <= revision {
			return false
		}
	}
	return true
}

// weigh bounds the sum of the large policies that apply here. While it is too high, the
// namespace with the highest sum loses its newest one.
func (ts *turns) weigh(d *Driver) {
	if ts.weighed {
		return
	}
	ts.weighed = true
	sums, all := map[string]time.Duration{}, map[string][]*turn{}
	total := time.Duration(0)
	for _, t := range ts.items {
		if t.wanted != nil && t.cost >= largeCost && t.state != elsewhere {
			sums[t.id.Namespace] += t.cost
			all[t.id.Namespace] = append(all[t.id.Namespace], t)
			total += t.cost
		}
	}
	for _, some := range all {
		slices.SortFunc(some, (*turn).olderFirst)
	}
	over := map[*turn]bool{}
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
		case over[t] && t.state != excess:
			t.why = fmt.Sprintf("the large policies of this node would take more than %s to program, and its namespace has the most of them", nodeCost)
			t.since = time.Now()
			t.take(d, nil, excess)
		case !over[t] && t.state == excess:
			ts.wait(t)
		}
	}
}

func (t *turn) olderFirst(o *turn) int {
	return cmp.Or(t.wanted.CreationTimestamp.Compare(o.wanted.CreationTimestamp.Time), t.id.Compare(o.id))
}

// refusals lists what the agent itself sets aside.
func (ts *turns) refusals(tr *tracker) []tables.Refusal {
	var out []tables.Refusal
	for _, t := range ts.items {
		if t.state != excess && t.attempts == 0 {
			continue
		}
		id := t.policy()
		r := tables.Refusal{Object: policyflows.Object, Name: id.String(), Reason: t.why, Since: t.since, NextTry: t.next, Attempts: max(1, t.attempts)}
		for pod, e := range tr.endpoints {
			if slices.Contains(e.Ingress.NetworkPolicies, id) || slices.Contains(e.Egress.NetworkPolicies, id) {
				r.Closed = append(r.Closed, pod.String())
			}
		}
		slices.Sort(r.Closed)
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b tables.Refusal) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
