package policyflows

import (
	"slices"

	"github.com/felixlike/felixlike/model"
)

// quarantine has the policies that are refused by the switch: they have no flows, and
// their pods are closed.
type quarantine struct {
	*objects
	placer  *placer
	refused map[*policy]struct{}
}

// refuse quarantines a policy: it removes its flows, and closes the pods that it applies
// to in its direction.
func (q *quarantine) refuse(p *policy) {
	if !p.refused {
		p.refused = true
		q.refused[p] = struct{}{}
		q.placer.reconsider(p)
	}
}

// lift puts a policy back that was refused.
func (q *quarantine) lift(p *policy) {
	p.refused = false
	delete(q.refused, p)
	q.placer.reconsider(p)
}

// liftUsers puts the refused policies back that ask a group, which has changed.
func (q *quarantine) liftUsers(id model.GroupID) {
	for p := range q.refused {
		if slices.ContainsFunc(p.rules, func(r *rule) bool {
			return slices.Contains(r.spec.Peers, id) || slices.Contains(r.spec.NamedPorts, id)
		}) {
			q.lift(p)
		}
	}
}

// updateGroup creates a group or changes its members. Only the flows of these members
// become dirty. It lifts the refused policies that ask the group.
func (q *quarantine) updateGroup(id model.GroupID, added, removed []model.Member) {
	g := q.groupOf(id)
	for _, m := range removed {
		q.removeMember(g, m)
	}
	for _, m := range added {
		q.addMember(g, m)
	}
	q.liftUsers(id)
	q.dropGroup(g)
}
