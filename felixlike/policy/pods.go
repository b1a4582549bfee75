package policy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
	"github.com/felixlike/felixlike/model"
)

// podStore has the pods of the cluster.
type podStore struct {
	// node is the name of this node.
	node string
	byID map[model.PodID]*pod
	// attached are the addresses that the CNI gave to local pods, and holders counts the attachments of each address.
	attached map[model.PodID][]netip.Addr
	holders  map[netip.Addr]int
	// ranges are the pod CIDRs that this node's object has. reporters has, by reported address, the pods that an
	// attachment may refute: local ones, and those that report an address of the ranges.
	ranges    []netip.Prefix
	reporters smallmap.Map[netip.Addr, smallmap.Set[*pod]]
	index     *selectionIndex
	members   *membership
	dirty     *dirtyRecords
}

func (x *podStore) set(object *corev1.Pod) []model.Problem {
	id := model.PodID{Namespace: object.Namespace, Name: object.Name}
	if object.Status.Phase == corev1.PodSucceeded || object.Status.Phase == corev1.PodFailed {
		// It does not run again.
		x.remove(id)
		return nil
	}
	next, problems := parsePod(object)
	if next.place == remote && object.Spec.NodeName == x.node {
		next.place = local
	}
	n := x.index.namespace(object.Namespace)
	next.class = x.index.class(n, x.index.labelSets.Intern(object.Labels))
	next.ports = next.class.sharedPorts(next.ports)
	p, ok := x.byID[id]
	if !ok {
		// All pods of a namespace share one copy of its name.
		id.Namespace = n.name
		p = &pod{id: id}
		x.byID[id] = p
	}
	next.addresses = x.addressesOf(p, &next)
	x.change(p, next)
	return problems
}

func (x *podStore) remove(id model.PodID) {
	if p, ok := x.byID[id]; ok {
		delete(x.byID, id)
		x.change(p, podState{})
	}
}

func (x *podStore) attach(id model.PodID, addresses []netip.Addr) {
	before := x.attached[id]
	now := usableAddresses(addresses)
	if len(addresses) == 0 {
		delete(x.attached, id)
	} else {
		x.attached[id] = now
	}
	for _, a := range now {
		x.holders[a]++
	}
	for _, a := range before {
		if x.holders[a]--; x.holders[a] == 0 {
			delete(x.holders, a)
		}
	}
	if p, ok := x.byID[id]; ok {
		p.detached = len(addresses) == 0 && (p.detached || len(before) > 0)
		x.recompute(p)
	}
	for _, a := range slices.Concat(before, now) {
		reporters := x.reporters.Get(a)
		for p := range reporters.All() {
			x.members.work.Visits++
			x.recompute(p)
		}
	}
}

// recompute follows a change of the attachments.
func (x *podStore) recompute(p *pod) {
	next := p.podState
	next.addresses = x.addressesOf(p, &next)
	x.change(p, next)
}

// addressesOf merges the reported addresses with those of the attachment, which is that of
// a local pod only. A pod that was detached has none, whatever its status says, and an address that
// another pod of this node is attached with is not the pod's.
func (x *podStore) addressesOf(p *pod, s *podState) []netip.Addr {
	attached := x.attached[p.id]
	if s.place != local {
		attached = nil
	} else if p.detached {
		return nil
	}
	refuted := func(a netip.Addr) bool {
		return x.holders[a] > 0 || slices.ContainsFunc(attached, func(o netip.Addr) bool { return o.Is4() == a.Is4() })
	}
	if len(attached) == 0 && !slices.ContainsFunc(s.reported, refuted) {
		return s.reported
	}
	merged := append(slices.Clone(attached), slices.DeleteFunc(slices.Clone(s.reported), refuted)...)
	slices.SortFunc(merged, netip.Addr.Compare)
	return merged
}

// setRanges sets the pod CIDRs of this node's object.
func (x *podStore) setRanges(ranges []netip.Prefix) {
	if slices.Equal(ranges, x.ranges) {
		return
	}
	for _, p := range x.byID {
		x.report(p, &p.podState, smallmap.RemoveFrom)
	}
	x.ranges = ranges
	for _, p := range x.byID {
		x.report(p, &p.podState, smallmap.AddTo)
	}
}

// report adds a pod to reporters, or removes it.
func (x *podStore) report(p *pod, s *podState, move func(*smallmap.Map[netip.Addr, smallmap.Set[*pod]], netip.Addr, *pod)) {
	for _, a := range s.reported {
		if s.place == local || slices.ContainsFunc(x.ranges, func(r netip.Prefix) bool { return r.Contains(a) }) {
			move(&x.reporters, a, p)
		}
	}
}

// change sets the next state of a pod: the zero state of a deleted one.
func (x *podStore) change(p *pod, next podState) {
	if p.same(&next) {
		return
	}
	old := p.podState
	if old.class != nil {
		old.class.take(p)
	}
	p.podState = next
	if old.place != next.place || !slices.Equal(old.reported, next.reported) {
		x.report(p, &old, smallmap.RemoveFrom)
		x.report(p, &next, smallmap.AddTo)
	}
	// In first, then out: a group that keeps the pod does not change.
	if next.class != nil {
		next.class.put(p)
		x.members.contribute(&next, 1)
	}
	if old.class != nil {
		x.members.contribute(&old, -1)
		x.index.dropClassIfEmpty(old.class)
	}
	if old.endpoint() || next.endpoint() {
		x.dirty.pod(p)
	}
}
