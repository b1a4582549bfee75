package policy

import (
	"crypto/sha256"
	"encoding/base32"
	"net/netip"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
)

// portName is a container port's name with its protocol.
type portName struct {
	protocol model.Protocol
	name     string
}

// groupSpec defines a group: over a selection (Addresses, AddressPorts) or
// over fixed prefixes (Networks).
type groupSpec struct {
	model.Group
	from     selectionSpec
	port     portName
	networks []netip.Prefix
}

// groupIDHash is how many characters of the hash an identifier has: 95 bits.
const groupIDHash = 19

// groupDescription bounds the length of a description in bytes.
const groupDescription = 200

func newGroup(letter string, kind model.GroupKind, key, description string) model.Group {
	sum := sha256.Sum256([]byte(key))
	id := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:groupIDHash]
	if len(description) > groupDescription {
		description = strings.ToValidUTF8(description[:groupDescription], "") + "..."
	}
	return model.Group{ID: model.GroupID(letter + id), Kind: kind, Description: description}
}

func addressesOf(s selectionSpec) groupSpec {
	return groupSpec{Group: newGroup("a", model.Addresses, s.key(), s.String()), from: s}
}

func portsOf(s selectionSpec, port portName) groupSpec {
	name := port.protocol.String() + "/" + port.name
	return groupSpec{Group: newGroup("p", model.AddressPorts, name+" "+s.key(), "port "+name+" of "+s.String()), from: s, port: port}
}

func networksOf(blocks []string, prefixes []netip.Prefix) groupSpec {
	text := strings.Join(blocks, ", ")
	return groupSpec{Group: newGroup("n", model.Networks, text, text), networks: prefixes}
}

// group is a group that some applied policy refers to.
type group struct {
	spec groupSpec
	// from is the selection the members come from; nil for Networks.
	from *selection
	// counts tells how many times each member was contributed: for a while
	// two pods may have one address.
	counts map[model.Member]int32
	refs   int
	// emitted tells whether a Flush has created the group; was keeps, for
	// each member that changed since, whether the last Flush knew it.
	emitted bool
	was     map[model.Member]bool
	dirty   set[*group]
}

func (g *group) countAddresses(p *podState, n int32) {
	for _, a := range p.addresses {
		g.count(model.AddressMember(a), n)
	}
}

func (g *group) countPort(p *podState, number uint16, n int32) {
	for _, a := range p.addresses {
		m := model.AddressMember(a)
		m.Protocol, m.Port = g.spec.port.protocol, number
		g.count(m, n)
	}
}

func (g *group) count(m model.Member, n int32) {
	before := g.counts[m]
	after := before + n
	if after > 0 {
		g.counts[m] = after
	} else {
		delete(g.counts, m)
	}
	if !g.emitted || before > 0 == (after > 0) {
		return
	}
	if _, ok := g.was[m]; !ok {
		g.was[m] = before > 0
		g.dirty.add(g)
	}
}

// flush returns what changed since the last flush; nothing changed if ok is
// false.
func (g *group) flush() (u model.GroupUpdate, ok bool) {
	u.Group = g.spec.Group
	if !g.emitted {
		u.Added = sortedKeys(g.counts, model.Member.Compare)
		g.emitted = true
		return u, true
	}
	for m, was := range g.was {
		switch is := g.counts[m] > 0; {
		case is && !was:
			u.Added = append(u.Added, m)
		case was && !is:
			u.Removed = append(u.Removed, m)
		}
	}
	clear(g.was)
	slices.SortFunc(u.Added, model.Member.Compare)
	slices.SortFunc(u.Removed, model.Member.Compare)
	return u, len(u.Added)+len(u.Removed) > 0
}

// acquire refers to a group and makes it if nobody did before; release undoes
// it. Groups without references go at the end of Flush.
func (e *Engine) acquire(spec groupSpec) {
	g, ok := e.groups[spec.ID]
	if !ok {
		g = &group{spec: spec, counts: map[model.Member]int32{}, was: map[model.Member]bool{}, dirty: e.dirtyGroups}
		e.groups[spec.ID] = g
		e.dirtyGroups.add(g)
		e.fill(g)
	}
	g.refs++
}

func (e *Engine) release(id model.GroupID) {
	g := e.groups[id]
	g.refs--
	if g.refs == 0 {
		e.dirtyGroups.add(g)
	}
}

func (e *Engine) fill(g *group) {
	if g.spec.Kind == model.Networks {
		for _, p := range g.spec.networks {
			g.counts[model.Member{Prefix: p}] = 1
		}
		return
	}
	s := e.selection(g.spec.from)
	g.from = s
	if g.spec.Kind == model.Addresses {
		s.addresses = g
		for p := range s.members {
			g.countAddresses(&p.podState, 1)
		}
		return
	}
	s.ports[g.spec.port] = g
	for p := range s.members {
		for _, port := range p.ports {
			if port.portName == g.spec.port {
				g.countPort(&p.podState, port.number, 1)
			}
		}
	}
}

// drop forgets a group without references.
func (e *Engine) drop(g *group) {
	delete(e.groups, g.spec.ID)
	if g.from == nil {
		return
	}
	if g.from.addresses == g {
		g.from.addresses = nil
	} else {
		delete(g.from.ports, g.spec.port)
	}
	e.dropIfUnused(g.from)
}
