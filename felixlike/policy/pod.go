package policy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/model"
)

// pod is a pod of the cluster that has not finished.
type pod struct {
	id model.PodID
	podState
	// slot is the pod's index in its class.
	slot int32
	// dirty tells whether the pod is among Engine.dirtyPods.
	dirty bool
}

// podState is what policy needs to know of a pod. What equal pods have in
// common they share.
type podState struct {
	// class is nil once the pod was deleted.
	class *class
	// reported are the addresses of the pod's status; addresses are those
	// that count, after the CNI's word was heard.
	reported, addresses []netip.Addr
	ports               []containerPort
	place               place
}

// containerPort is a port that a container declares under a name.
type containerPort struct {
	compile.PortName
	number uint16
}

// same reports whether both states mean the same to policy.
func (s *podState) same(o *podState) bool {
	return s.class == o.class && s.place == o.place && slices.Equal(s.reported, o.reported) &&
		slices.Equal(s.addresses, o.addresses) && slices.Equal(s.ports, o.ports)
}

// endpoint reports whether the pod is an endpoint of this node.
func (s *podState) endpoint() bool { return s.class != nil && s.place == local }

// SetPod creates or replaces a pod, and reports what in it cannot be used.
func (e *Engine) SetPod(object *corev1.Pod) []model.Problem {
	if object == nil {
		return nil
	}
	id := model.PodID{Namespace: object.Namespace, Name: object.Name}
	if object.Status.Phase == corev1.PodSucceeded || object.Status.Phase == corev1.PodFailed {
		// It will not run again; policy has no use for it.
		e.DeletePod(id)
		return nil
	}
	next, problems := parsePod(object)
	if next.place == remote && object.Spec.NodeName == e.node {
		next.place = local
	}
	n := e.namespace(object.Namespace)
	next.class = e.class(n, e.labelSets.Intern(object.Labels))
	next.ports = next.class.sharedPorts(next.ports)
	p, ok := e.pods[id]
	if !ok {
		// One copy of the namespace's name for all its pods.
		id.Namespace = n.name
		p = &pod{id: id}
		e.pods[id] = p
	}
	next.addresses = e.addressesOf(id, &next)
	e.change(p, next)
	return problems
}

// DeletePod removes a pod.
func (e *Engine) DeletePod(id model.PodID) {
	if p, ok := e.pods[id]; ok {
		delete(e.pods, id)
		e.change(p, podState{})
	}
}

// SetLocalAddresses tells which addresses the CNI gave a pod of this node.
// They replace those that the pod's status reports, family by family: the
// status comes late, or is that of an earlier life of the pod. Nil takes the
// word back. It may come before the pod does.
func (e *Engine) SetLocalAddresses(id model.PodID, addresses []netip.Addr) {
	if len(addresses) == 0 {
		delete(e.attached, id)
	} else {
		e.attached[id] = usableAddresses(addresses)
	}
	if p, ok := e.pods[id]; ok {
		next := p.podState
		next.addresses = e.addressesOf(id, &next)
		e.change(p, next)
	}
}

// addressesOf merges the reported addresses with those of the attachment. An
// attachment says nothing about a pod of its name on another node.
func (e *Engine) addressesOf(id model.PodID, s *podState) []netip.Addr {
	attached := e.attached[id]
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

// usableAddresses unmaps, sorts and compacts what can be a pod's address.
func usableAddresses(addresses []netip.Addr) []netip.Addr {
	var usable []netip.Addr
	for _, a := range addresses {
		if podAddress(a) {
			usable = append(usable, a.Unmap())
		}
	}
	slices.SortFunc(usable, netip.Addr.Compare)
	return slices.Compact(usable)
}

// podAddress reports whether a packet on the wire can carry the address as
// that of a pod.
func podAddress(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsValid() && a.Zone() == "" && !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast()
}

// change brings a pod to its next state, which a pod that was deleted does not
// have.
func (e *Engine) change(p *pod, next podState) {
	if p.same(&next) {
		return
	}
	old := p.podState
	if old.class != nil {
		old.class.take(p)
	}
	p.podState = next
	// In first, out then: what the pod stays in does not notice.
	if next.class != nil {
		next.class.put(p)
		e.contribute(&next, 1)
	}
	if old.class != nil {
		e.contribute(&old, -1)
		e.dropClassIfEmpty(old.class)
	}
	if old.endpoint() || next.endpoint() {
		e.dirtyPod(p)
	}
}
