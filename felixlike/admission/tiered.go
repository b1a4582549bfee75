package admission

import (
	"cmp"
	"slices"
	"time"

	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/model"
)

// tieredAdmission decides when the policy engine gets a large policy of an ordered tier: a ClusterNetworkPolicy, or one of
// Antrea's kinds. Each cycle takes one slice of them, those of the whole cluster before those of a namespace, then the one that has waited longest,
// and every second cycle none if other changes wait. Meanwhile the former version stays in force, and a new one is not in force yet: it
// may select the pods of all namespaces, which must not be closed for that long. A new pod waits for those that came before it and can
// select it.
type tieredAdmission struct {
	cluster   *cluster.Cluster
	dataplane Dataplane
	items     map[model.ObjectRef]*tieredItem
	queued    uint64
	// yielded is set if the last cycle took none.
	yielded bool
}

// tieredItem is a large policy until an apply has programmed it.
type tieredItem struct {
	cost             time.Duration
	queued, revision uint64
	// submit gives it to the engine; nil afterwards.
	submit func()
	// submittedAt is the model's revision with the policy, zero before.
	submittedAt uint64
}

func newTieredAdmission(c *cluster.Cluster, d Dataplane) *tieredAdmission {
	return &tieredAdmission{cluster: c, dataplane: d, items: map[model.ObjectRef]*tieredItem{}}
}

// set takes a new or changed policy.
func (ts *tieredAdmission) set(object model.ObjectRef, cost time.Duration, submit func()) {
	before := ts.items[object]
	delete(ts.items, object)
	r, _ := ts.dataplane.Runs()
	if cost < largeCost || !r.Applied {
		submit()
		return
	}
	ts.queued++
	t := &tieredItem{cost: cost, queued: ts.queued, revision: ts.cluster.Observed(), submit: submit}
	ts.items[object] = t
	if before == nil {
		return
	}
	t.revision = before.revision // that is not programmed yet
	switch {
	case before.submit != nil:
		t.queued = before.queued
	case r.Failures > 0: // perhaps because of the version that the engine has
		t.take()
	}
}

// take gives the policy to the engine.
func (t *tieredItem) take() {
	t.submit()
	t.submit = nil
}

// remove takes the deletion of a policy.
func (ts *tieredAdmission) remove(object model.ObjectRef) { delete(ts.items, object) }

// begin gives the engine the policies that the next cycle is to program, after those that cost spent, and reports whether there are any.
func (ts *tieredAdmission) begin(spent time.Duration) bool {
	var queue []*tieredItem
	for _, object := range ts.queue() {
		queue = append(queue, ts.items[object])
	}
	r, ok := ts.dataplane.Runs()
	if len(queue) == 0 || !ok || r.Failures > 0 {
		return false
	}
	others := ts.cluster.Model().Revision() > r.Programmed
	if ts.yielded = !ts.yielded && (others || spent > 0); ts.yielded {
		return false
	}
	sum := time.Duration(0)
	for i, t := range queue {
		if sum += t.cost; i > 0 && sum > sliceCost {
			break
		}
		t.take()
	}
	return true
}

// flushed notes, after a flush of the engine, what the cycles have to program, and forgets what they have.
func (ts *tieredAdmission) flushed() {
	r, ok := ts.dataplane.Runs()
	for object, t := range ts.items {
		switch {
		case t.submit != nil:
		case t.submittedAt == 0:
			t.submittedAt = ts.cluster.Model().Revision()
		case ok && r.Programmed >= t.submittedAt:
			delete(ts.items, object)
		}
	}
}

// queue returns the policies that wait for their turn, in its order.
func (ts *tieredAdmission) queue() (all []model.ObjectRef) {
	for object, t := range ts.items {
		if t.submit != nil {
			all = append(all, object)
		}
	}
	slices.SortFunc(all, func(a, b model.ObjectRef) int {
		return cmp.Or(cmp.Compare(min(len(a.Namespace), 1), min(len(b.Namespace), 1)), cmp.Compare(ts.items[a].queued, ts.items[b].queued))
	})
	return all
}

// waits reports whether a policy waits for its turn.
func (ts *tieredAdmission) waits() bool { return len(ts.queue()) > 0 }

// before returns a policy that waits since a revision of the datastore, or an earlier one, and can select pods of a namespace.
func (ts *tieredAdmission) before(revision uint64, namespace string) (model.ObjectRef, bool) {
	for _, object := range ts.queue() {
		if ts.items[object].revision <= revision && (object.Namespace == "" || object.Namespace == namespace) {
			return object, true
		}
	}
	return model.ObjectRef{}, false
}

// reached reports whether all policies of this or an earlier revision of the datastore are programmed.
func (ts *tieredAdmission) reached(revision uint64) bool {
	ts.flushed()
	for _, t := range ts.items {
		if t.revision <= revision {
			return false
		}
	}
	return true
}

// waiting names the policies that wait for their turn.
func (ts *tieredAdmission) waiting() (all []model.Problem) {
	for _, object := range ts.queue() {
		all = append(all, model.Problem{Object: object, Field: "spec", Reason: "the policy is large, and others are programmed before it. Until then its former version stays in force, and new pods that it can select wait"})
	}
	return all
}

// costOfCluster is costOf for a ClusterNetworkPolicy.
func costOfCluster(p *v1alpha2.ClusterNetworkPolicy, inSwitch bool) time.Duration {
	if compile.Staged(p.Annotations) {
		return 0
	}
	var in, out parts
	for i := range p.Spec.Ingress {
		in.combine(len(p.Spec.Ingress[i].From), 0, len(p.Spec.Ingress[i].Protocols))
	}
	for i := range p.Spec.Egress {
		selectors, prefixes := 0, 0
		for _, peer := range p.Spec.Egress[i].To {
			if prefixes += len(peer.Networks); len(peer.Networks) == 0 {
				selectors++
			}
		}
		out.combine(selectors, prefixes, len(p.Spec.Egress[i].Protocols))
	}
	return in.cost(inSwitch, 1) + out.cost(inSwitch, 1)
}

// costOfAntrea is costOf for an object of Antrea's API. Only policies cost.
func costOfAntrea(object antrea.Object, inSwitch bool) time.Duration {
	spec := compile.AntreaSpec(object)
	if spec == nil || compile.Staged(object.GetAnnotations()) {
		return 0
	}
	count := func(rules []antrea.Rule) time.Duration {
		var c parts
		for i := range rules {
			selectors, prefixes := 0, 0
			for _, peer := range slices.Concat(rules[i].From, rules[i].To) {
				if peer.IPBlock != nil {
					prefixes += 1 + len(peer.IPBlock.Except)
				} else {
					selectors++
				}
			}
			c.combine(selectors, prefixes, len(rules[i].Ports)+len(rules[i].Protocols))
		}
		return c.cost(inSwitch, 1)
	}
	return count(spec.Ingress) + count(spec.Egress)
}

// combine adds a rule. All its networks are one peer.
func (c *parts) combine(selectors, prefixes, ports int) {
	c.selectors += selectors
	c.prefixes += prefixes
	c.alternatives += max(1, selectors+min(prefixes, 1)) * max(1, ports)
}
