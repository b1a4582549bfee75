package policy

import (
	"cmp"
	"slices"

	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
	"github.com/felixlike/felixlike/model"
)

// group is a group that some applied policy refers to.
type group struct {
	model.Group
	// spec is the definition.
	spec compile.Group
	// from is the selection the members come from, nil for nodes and Networks; port
	// is the one of AddressPorts. nodes selects nodes.
	from  *selection
	port  compile.PortName
	nodes *label.Selector
	// counts tells how many times each member was contributed: for a while
	// two pods may have one address.
	counts smallmap.Map[model.Member, int32]
	refs   int
	// emitted tells whether a Flush has created the group; was keeps, for
	// each member that changed since, whether the last Flush knew it.
	emitted bool
	was     smallmap.Map[model.Member, bool]
	// dirty tells whether the group is among Engine.dirtyGroups.
	dirty bool
}

func (e *Engine) countAddresses(g *group, p *podState, n int32) {
	for _, a := range p.addresses {
		e.countMember(g, model.AddressMember(a), n)
	}
}

func (e *Engine) countPort(g *group, p *podState, number uint16, n int32) {
	for _, a := range p.addresses {
		m := model.AddressMember(a)
		m.Protocol, m.Port = g.port.Protocol, number
		e.countMember(g, m, n)
	}
}

func (e *Engine) countMember(g *group, m model.Member, n int32) {
	e.work.Members++
	before := g.counts.Get(m)
	after := before + n
	if after > 0 {
		g.counts.Put(m, after)
	} else {
		g.counts.Remove(m)
	}
	if g.emitted && before > 0 != (after > 0) && !g.was.Has(m) {
		g.was.Put(m, before > 0)
		e.dirtyGroup(g)
	}
}

func (e *Engine) dirtyGroup(g *group) {
	if !g.dirty {
		g.dirty = true
		e.dirtyGroups = append(e.dirtyGroups, g)
	}
}

// members returns the members, sorted.
func (g *group) members() []model.Member {
	all := slices.AppendSeq(make([]model.Member, 0, g.counts.Len()), g.counts.Keys())
	slices.SortFunc(all, model.Member.Compare)
	return all
}

// flush returns what changed since the last flush; nothing changed if ok is
// false.
func (g *group) flush() (u model.GroupUpdate, ok bool) {
	u.Group = g.Group
	if !g.emitted {
		u.Added = g.members()
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

// acquire refers to a group and makes it if nobody did before; release undoes
// it. Groups without references go at the end of Flush.
func (e *Engine) acquire(spec *compile.Group) {
	g, ok := e.groups[spec.ID]
	if !ok {
		g = &group{Group: model.Group{ID: spec.ID, Kind: spec.Kind, Description: spec.Describe()}, spec: *spec, port: spec.Port}
		e.groups[spec.ID] = g
		e.dirtyGroup(g)
		e.fill(g, spec)
	}
	g.refs++
}

func (e *Engine) release(id model.GroupID) {
	g := e.groups[id]
	g.refs--
	if g.refs == 0 {
		e.dirtyGroup(g)
	}
}

func (e *Engine) fill(g *group, spec *compile.Group) {
	if g.Kind == model.Networks {
		for _, m := range spec.Members() {
			g.counts.Put(m, 1)
		}
		return
	}
	if spec.Nodes != nil {
		e.fillNodes(g, spec.Nodes)
		return
	}
	s := e.selection(spec.From)
	g.from = s
	if g.Kind == model.Addresses {
		s.addresses = g
	} else {
		s.ports.Put(g.port, g)
	}
	for c := range s.classes.All() {
		e.podsOf(c, func(p *pod) { e.countIn(g, &p.podState) })
	}
}

// countIn counts in what a pod is to a new group.
func (e *Engine) countIn(g *group, p *podState) {
	if g.Kind == model.Addresses {
		e.countAddresses(g, p, 1)
		return
	}
	for _, port := range p.ports {
		if port.PortName == g.port {
			e.countPort(g, p, port.number, 1)
		}
	}
}

// drop forgets a group without references.
func (e *Engine) drop(g *group) {
	delete(e.groups, g.ID)
	if g.nodes != nil {
		e.dropNodes(g)
	}
	if g.from == nil {
		return
	}
	if g.from.addresses == g {
		g.from.addresses = nil
	} else {
		g.from.ports.Remove(g.port)
	}
	e.dropIfUnused(g.from)
}

func (e *Engine) flushGroups() (updates, removals []model.Update) {
	dirty := e.dirtyGroups
	e.dirtyGroups = nil
	slices.SortFunc(dirty, func(a, b *group) int { return cmp.Compare(a.ID, b.ID) })
	for _, g := range dirty {
		g.dirty = false
		if g.refs == 0 {
			e.drop(g)
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
