package policy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/model"
)

// podStore has the pods of the cluster.
type podStore struct {
	// node is the name of this node.
	node string
	byID map[model.PodID]*pod
	// attached are the addresses that the CNI gave to local pods.
	attached map[model.PodID][]netip.Addr
	index    *selectionIndex
	members  *membership
	dirty    *dirtyRecords
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
	next.addresses = x.addressesOf(id, &next)
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
	if len(addresses) == 0 {
		delete(x.attached, id)
	} else {
		x.attached[id] = usableAddresses(addresses)
	}
	if p, ok := x.byID[id]; ok {
		next := p.podState
		next.addresses = x.addressesOf(id, &next)
		x.change(p, next)
	}
}

// addressesOf merges the reported addresses with those of the attachment, which is that of
// a local pod only.
func (x *podStore) addressesOf(id model.PodID, s *podState) []netip.Addr {
	attached := x.attached[id]
	if s.place != local || len(attached) == 0 {
		return s.reported
	}
	merged := slices.Clone(attached)
	for _, a := range s.reported {
		family := func(o netip.Addr) bool { return o.Is4() == a.Is4() }
		if !slices.ContainsFunc(attached, family) {
			merged = append(merged, a)
		}
	}
	slices.SortFunc(merged, netip.Addr.Compare)
	return merged
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
