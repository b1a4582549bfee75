package policy

import (
	"maps"
	"slices"

	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
	"github.com/felixlike/felixlike/model"
)

// hostStore has the policies that apply to this node itself. They are compiled, ordered and closed as those of pods are,
// by the policyStore, which tells it of each change.
type hostStore struct {
	*matcher
	// labels are those of the node's object. They stay while the datastore has no such object; nil before the first one.
	labels *label.Set
	raw    map[string]string
	// all are the policies for nodes, of any node.
	all smallmap.Set[*policy]
	// stale is set if the lists, or a policy of them, changed since the last Flush.
	stale   bool
	emitted *model.HostPolicies
}

// selects reports whether a policy is for nodes and applies to this one.
func (x *hostStore) selects(p *policy) bool {
	return p.compiled != nil && (p.compiled.Ingress || p.compiled.Egress) && x.labels != nil &&
		slices.ContainsFunc(p.compiled.Nodes, func(s *label.Selector) bool { return x.matches(s, x.labels) })
}

// setLabels sets the labels of this node.
func (x *hostStore) setLabels(labels map[string]string, dirty *dirtyRecords) {
	if x.labels != nil && maps.Equal(labels, x.raw) {
		return
	}
	// Not one of the stored sets: it outlives the object.
	x.raw, x.labels = maps.Clone(labels), label.NewSets().Intern(labels)
	for p := range x.all.All() {
		x.work.Visits++
		dirty.policy(p)
	}
}

// note notes a policy that was set or removed.
func (x *hostStore) note(p *policy) {
	if p.compiled != nil && len(p.compiled.Nodes) > 0 {
		x.all.Add(p)
	} else {
		x.all.Remove(p)
	}
}

// flush returns the policies of this node if they changed, with the members that their groups have in byID. It follows the flush of
// the groups.
func (x *hostStore) flush(byID map[model.GroupID]*group) []model.Update {
	if !x.stale {
		return nil
	}
	x.stale = false
	var applied []*policy
	for p := range x.all.All() {
		if p.emitted != nil {
			applied = append(applied, p)
		}
	}
	slices.SortFunc(applied, inOrder)
	now, asked := &model.HostPolicies{}, map[model.GroupID]bool{}
	for _, p := range applied {
		for _, d := range model.Directions() {
			list := &now.Ingress
			switch {
			case p.emitted.PreDNAT:
				list = &now.PreDNAT
			case d == model.Egress:
				list = &now.Egress
			}
			switch {
			case len(p.emitted.Rules(d)) == 0:
			case p.id.Tier == model.TierBaseline:
				list.Baseline = append(list.Baseline, p.id)
			default:
				list.Admin = append(list.Admin, p.id)
			}
			for _, r := range p.emitted.Rules(d) {
				for _, id := range slices.Concat(r.Peers, r.NamedPorts) {
					asked[id] = true
				}
			}
		}
		now.Policies = append(now.Policies, p.emitted)
	}
	slices.SortFunc(now.Policies, func(a, b *model.Policy) int { return a.ID.Compare(b.ID) })
	for _, id := range slices.Sorted(maps.Keys(asked)) {
		if g := byID[id]; g != nil {
			now.Groups = append(now.Groups, model.HostGroup{Group: g.Group, Members: g.sortedMembers()})
		}
	}
	x.emitted = now
	return []model.Update{model.HostPoliciesUpdate{Policies: now}}
}

// current returns the policies of the last Flush with the members that their groups have now.
func (x *hostStore) current(byID map[model.GroupID]*group) *model.HostPolicies {
	now := *x.emitted
	now.Groups = slices.Clone(now.Groups)
	for i := range now.Groups {
		if g := byID[now.Groups[i].ID]; g != nil {
			now.Groups[i].Members = g.sortedMembers()
		}
	}
	return &now
}
