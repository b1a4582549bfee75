package policy

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/model"
)

// pod is a pod of the cluster and the selections that it is in.
type pod struct {
	id model.PodID
	podState
	selections []*selection
}

// podState is what policy needs to know of a pod.
type podState struct {
	// labels is the map of the object, which nobody may change.
	labels map[string]string
	// reported are the addresses of the pod's status; addresses are those
	// that count, after the CNI's word was heard.
	reported, addresses []netip.Addr
	ports               []containerPort
	local, hostNetwork  bool
	// selectable tells whether policy can select the pod: it has a network
	// of its own and has not finished.
	selectable bool
}

// containerPort is a port that a container declares under a name.
type containerPort struct {
	portName
	number uint16
}

// same reports whether both states mean the same to policy.
func (s *podState) same(o *podState) bool {
	return s.sameMembers(o) && maps.Equal(s.labels, o.labels) && slices.Equal(s.reported, o.reported) &&
		s.local == o.local && s.hostNetwork == o.hostNetwork && s.selectable == o.selectable
}

// sameMembers reports whether both states give a group the same members.
func (s *podState) sameMembers(o *podState) bool {
	return slices.Equal(s.addresses, o.addresses) && slices.Equal(s.ports, o.ports)
}

// SetPod creates or replaces a pod, and reports what in it cannot be used.
// The engine keeps the object's label map.
func (e *Engine) SetPod(object *corev1.Pod) []model.Problem {
	if object == nil {
		return nil
	}
	next, problems := parsePod(object)
	next.local = object.Spec.NodeName == e.node
	id := model.PodID{Namespace: object.Namespace, Name: object.Name}
	p, ok := e.pods[id]
	if !ok {
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
		e.change(p, podState{})
		delete(e.pods, id)
		e.dropNamespaceIfEmpty(e.namespace(id.Namespace))
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
	if !s.local || len(attached) == 0 {
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

// change brings a pod to its next state: out of the selections that no longer
// match, into those that match now, and anew into the groups of the others
// where addresses or ports changed.
func (e *Engine) change(p *pod, next podState) {
	if p.same(&next) {
		return
	}
	n := e.namespace(p.id.Namespace)
	e.marks++
	now := e.matching(n, &next, e.scratch[:0])
	for _, s := range slices.Clone(p.selections) {
		if s.mark != e.marks {
			e.leave(s, p)
		}
	}
	members := !p.sameMembers(&next)
	n.unindex(p)
	old := p.podState
	p.podState = next
	n.index(p)
	for _, s := range now {
		switch {
		case !s.members.has(p):
			e.enter(s, p)
		case members:
			e.contribute(s, &p.podState, 1)
			e.contribute(s, &old, -1)
		}
	}
	clear(now)
	e.scratch = now[:0]
	if old.endpoint() || p.endpoint() {
		e.dirtyEndpoints.add(p.id)
	}
}

// matching appends the selections that a pod of the namespace in that state
// belongs to, and marks them.
func (e *Engine) matching(n *namespace, s *podState, found []*selection) []*selection {
	if !s.selectable {
		return found
	}
	for sc := range n.scopes {
		if sc.local && !s.local {
			continue
		}
		sc.index.candidates(s.labels, func(c *selection) {
			e.work.Matches++
			if c.pods.matches(s.labels) {
				c.mark = e.marks
				found = append(found, c)
			}
		})
	}
	return found
}

// endpoint reports whether the pod is an endpoint of this node.
func (s *podState) endpoint() bool { return s.local && s.selectable }
