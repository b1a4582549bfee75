package revalidate

import (
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/felixlike/ends"
	"github.com/felixlike/felixlike/felixlike/policy/judge"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
)

// verdicts is the model by which a walk judges connections, with the changes that wait for a walk. The
// revalidator has its lock.
type verdicts struct {
	// judge, endpoints and partial change together, by whole flushes of the engine: between two updates of a
	// flush, a pod may have no policy that allows what both versions allow.
	judge     *judge.Judge
	endpoints map[model.PodID]*model.Endpoint
	// partial are the NetworkPolicies of which the engine does not have the rules as written.
	partial map[model.PolicyID]bool
	// changed has the model.PodIDs, model.PolicyIDs and model.GroupIDs whose connections wait for a walk, with
	// the model's revision at their newest update.
	changed map[any]uint64
}

func newVerdicts() verdicts {
	return verdicts{judge: judge.New(), endpoints: map[model.PodID]*model.Endpoint{}, changed: map[any]uint64{}}
}

// take adds an update of the model.
func (v *verdicts) take(u model.Update, revision uint64) {
	v.judge.OnUpdate(u)
	switch u := u.(type) {
	case model.EndpointUpdate:
		v.endpoints[u.Endpoint.ID] = u.Endpoint
		v.changed[u.Endpoint.ID] = revision
	case model.EndpointRemove:
		delete(v.endpoints, u.ID)
		delete(v.changed, u.ID)
	case model.PolicyUpdate:
		v.changed[u.Policy.ID] = revision
	case model.PolicyRemove: // its endpoints have updates
		delete(v.changed, u.ID)
	case model.GroupUpdate:
		v.changed[u.Group.ID] = revision
	case model.GroupRemove:
		delete(v.changed, u.ID)
	}
}

// setPartial replaces the partial policies. One that is not partial any more has changed: the result is true.
func (v *verdicts) setPartial(partial map[model.PolicyID]bool, revision uint64) (changed bool) {
	for id := range v.partial {
		if !partial[id] {
			v.changed[id], changed = revision, true
		}
	}
	v.partial = partial
	return changed
}

// due takes the changes that the dataplane has, and returns them with the addresses of the pods that they
// affect.
func (v *verdicts) due(s *site) (due map[any]uint64, affected map[netip.Addr]bool) {
	due, affected = map[any]uint64{}, map[netip.Addr]bool{}
	groups, policies := map[model.GroupID]bool{}, map[model.PolicyID]bool{}
	for id, at := range v.changed {
		if at > s.programmed {
			continue
		}
		if id, ok := id.(model.GroupID); ok {
			groups[id] = true
		}
		if id, ok := id.(model.PolicyID); ok {
			policies[id] = true
		}
		due[id] = at
	}
	for _, id := range v.judge.UsersOf(groups) {
		policies[id] = true
	}
	for addr, id := range s.Pods {
		e := v.endpoints[id]
		if e == nil {
			continue
		}
		_, changed := due[id]
		for _, d := range model.Directions() {
			for id := range e.Applied(d).All() {
				changed = changed || policies[id]
			}
		}
		if changed {
			affected[addr] = true
		}
	}
	for id := range due {
		delete(v.changed, id)
	}
	return due, affected
}

// denies judges both ends of a connection that are pods of this node. The other nodes judge theirs.
func (v *verdicts) denies(s *site, k *conntrack.Connection) bool {
	from, to, port := s.Of(k)
	if !s.Judged(from, to) {
		return false
	}
	packet := judge.Packet{Source: from, Destination: to, Protocol: model.Protocol(k.Original.Protocol), Port: port}
	denies := func(a netip.Addr, d model.Direction) bool {
		id, here := s.Pods[a]
		e := v.endpoints[id]
		if !here || e == nil {
			return false
		}
		applied := e.Applied(d)
		found := v.judge.Decide(applied, d, packet)
		if found.Isolated && slices.ContainsFunc(applied.NetworkPolicies, func(id model.PolicyID) bool { return v.partial[id] }) {
			return false // its rules as written may allow the packet
		}
		return found.Action.Denies()
	}
	return denies(from, model.Egress) || denies(to, model.Ingress)
}

// site is the node as a walk sees it.
type site struct {
	*ends.Site
	// programmed is the count of updates that the dataplane has.
	programmed uint64
}
