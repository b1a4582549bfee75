package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
	"github.com/felixlike/felixlike/model"
)

// portName is a container port's name with its protocol.
type portName struct {
	protocol model.Protocol
	name     string
}

func (p portName) compare(o portName) int {
	return cmp.Or(cmp.Compare(p.name, o.name), cmp.Compare(p.protocol, o.protocol))
}

// groupSpec defines a group: over a selection (Addresses, AddressPorts), over the
// nodes that a selector matches (Addresses), or over fixed prefixes (Networks).
type groupSpec struct {
	id       model.GroupID
	kind     model.GroupKind
	from     selectionSpec
	nodes    *label.Selector
	port     portName
	networks *networks
}

// networks are the members that the blocks of a rule come to.
type networks struct {
	blocks  string
	members []model.Member
}

// groupIDHash is how many characters of the hash an identifier has: 138 bits. More
// would not fit the names of the kernel's ipset. Two selectors with one identifier take
// 2^69 tries, so the engine compares the definitions of groups (see collision.go).
const groupIDHash = 23

// groupDescription bounds the length of a description in bytes.
const groupDescription = 200

// groupIDs makes identifiers with so many characters of hash.
type groupIDs int

func (n groupIDs) id(letter byte, key string) model.GroupID {
	sum := sha256.Sum256([]byte(key))
	var text [1 + 43]byte
	base64.RawURLEncoding.Encode(text[1:], sum[:])
	text[0] = letter
	return model.GroupID(text[:1+n])
}

func (n groupIDs) addressesOf(s selectionSpec) groupSpec {
	return groupSpec{id: n.id('a', s.key()), kind: model.Addresses, from: s}
}

// nodesOf: no key of a selection begins as this one does.
func (n groupIDs) nodesOf(s *label.Selector) groupSpec {
	return groupSpec{id: n.id('a', "nodes "+s.String()), kind: model.Addresses, nodes: s}
}

func (n groupIDs) portsOf(s selectionSpec, port portName) groupSpec {
	return groupSpec{id: n.id('p', port.String()+" "+s.key()), kind: model.AddressPorts, from: s, port: port}
}

func (n groupIDs) networksOf(blocks []string, members []model.Member) groupSpec {
	text := strings.Join(blocks, ", ")
	return groupSpec{id: n.id('n', text), kind: model.Networks, networks: &networks{text, members}}
}

// String returns the name as "tcp/web".
func (p portName) String() string { return p.protocol.String() + "/" + p.name }

// describe says in words what the group stands for.
func (s *groupSpec) describe() string {
	var text string
	switch {
	case s.nodes != nil && s.nodes.IsEverything():
		text = "all nodes"
	case s.nodes != nil:
		text = "nodes " + s.nodes.String()
	case s.kind == model.Networks:
		text = s.networks.blocks
	case s.kind == model.AddressPorts:
		text = "port " + s.port.String() + " of " + s.from.String()
	default:
		text = s.from.String()
	}
	if len(text) > groupDescription {
		text = strings.ToValidUTF8(text[:groupDescription], "") + "..."
	}
	return text
}

// group is a group that some applied policy refers to.
type group struct {
	model.Group
	// spec is the definition.
	spec groupSpec
	// from is the selection the members come from, nil for nodes and Networks; port
	// is the one of AddressPorts. nodes selects nodes.
	from  *selection
	port  portName
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
		m.Protocol, m.Port = g.port.protocol, number
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
func (e *Engine) acquire(spec *groupSpec) {
	g, ok := e.groups[spec.id]
	if !ok {
		g = &group{Group: model.Group{ID: spec.id, Kind: spec.kind, Description: spec.describe()}, spec: *spec, port: spec.port}
		e.groups[spec.id] = g
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

func (e *Engine) fill(g *group, spec *groupSpec) {
	if g.Kind == model.Networks {
		for _, m := range spec.networks.members {
			g.counts.Put(m, 1)
		}
		return
	}
	if spec.nodes != nil {
		e.fillNodes(g, spec.nodes)
		return
	}
	s := e.selection(spec.from)
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
		if port.portName == g.port {
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
