package policy

import (
	"cmp"
	"slices"

	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
	"github.com/felixlike/felixlike/model"
)

// groupStore has the groups in the rules of policies that apply to local pods.
type groupStore struct {
	byID    map[model.GroupID]*group
	index   *selectionIndex
	nodes   *nodePeers
	cluster *nodeGroups
	members *membership
	dirty   *dirtyRecords
}

// acquire counts a reference to a group, and creates it if it does not exist. Flush removes
// groups without references.
func (x *groupStore) acquire(spec *compile.Group) {
	g, ok := x.byID[spec.ID]
	if !ok {
		g = &group{Group: model.Group{ID: spec.ID, Kind: spec.Kind, Description: spec.Describe()}, spec: *spec, port: spec.Port}
		x.byID[spec.ID] = g
		x.dirty.group(g)
		x.fill(g, spec)
	}
	g.refs++
}

// release gives back a reference.
func (x *groupStore) release(id model.GroupID) {
	g := x.byID[id]
	g.refs--
	if g.refs == 0 {
		x.dirty.group(g)
	}
}

// collision returns the first group of the policy with an identifier that another group has.
func (x *groupStore) collision(c *compile.Policy) (compile.Collision, bool) {
	for i := range c.Groups {
		spec := &c.Groups[i]
		if g := x.byID[spec.ID]; g != nil && !g.spec.Same(spec) {
			return compile.Collision{Group: spec.Describe(), Other: g.Description}, true
		}
	}
	return compile.Collision{}, false
}

func (x *groupStore) fill(g *group, spec *compile.Group) {
	if spec.Cluster != 0 {
		x.cluster.fill(g)
		return
	}
	if g.Kind == model.Networks {
		for _, m := range spec.Members() {
			g.counts.Put(m, 1)
		}
		return
	}
	if spec.Nodes != nil {
		x.nodes.fill(g, spec.Nodes)
		return
	}
	s := x.index.selection(spec.From)
	g.from = s
	if g.Kind == model.Addresses {
		s.addresses = g
	} else {
		s.ports.Put(g.port, g)
	}
	x.members.fill(g, s)
}

// drop removes a group without references.
func (x *groupStore) drop(g *group) {
	delete(x.byID, g.ID)
	if g.nodes != nil {
		x.nodes.drop(g)
	}
	if g.spec.Cluster != 0 {
		x.cluster.drop(g)
	}
	if g.from == nil {
		return
	}
	if g.from.addresses == g {
		g.from.addresses = nil
	} else {
		g.from.ports.Remove(g.port)
	}
	x.index.dropIfUnused(g.from)
}

func (x *groupStore) flush() (updates, removals []model.Update) {
	dirty := x.dirty.groups
	x.dirty.groups = nil
	slices.SortFunc(dirty, func(a, b *group) int { return cmp.Compare(a.ID, b.ID) })
	for _, g := range dirty {
		g.dirty = false
		if g.refs == 0 {
			x.drop(g)
			if g.emitted {
				removals = append(removals, model.GroupRemove{ID: g.ID})
			}
			continue
		}
		if u, ok := g.flush(); ok {
			updates = append(updates, u)
		}
	}
	return updates, removals
}

// sortedMembers returns the members, sorted.
func (g *group) sortedMembers() []model.Member {
	all := slices.AppendSeq(make([]model.Member, 0, g.counts.Len()), g.counts.Keys())
	slices.SortFunc(all, model.Member.Compare)
	return all
}

// flush returns the changes since the last flush. ok is false if there are none.
func (g *group) flush() (u model.GroupUpdate, ok bool) {
	u.Group = g.Group
	if !g.emitted {
		u.Added = g.sortedMembers()
		g.emitted = true
		return u, true
	}
	for m, was := range g.was.All() {
		switch is := g.counts.Has(m); {
		case is && !was:
			u.Added = append(u.Added, m)
		case was && !is:
			u.Removed = append(u.Removed, m)
		}
	}
	g.was = smallmap.Map[model.Member, bool]{}
	slices.SortFunc(u.Added, model.Member.Compare)
	slices.SortFunc(u.Removed, model.Member.Compare)
	return u, len(u.Added)+len(u.Removed) > 0
}
