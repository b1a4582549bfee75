package policy

import (
	"github.com/felixlike/felixlike/felixlike/policy/smallmap"
	"github.com/felixlike/felixlike/model"
)

// membership counts pods as they enter and leave selections: into the groups of the
// selections, and as the local pods that their policies apply to. It marks the Egresses of the selections.
type membership struct {
	work  *Work
	dirty *dirtyRecords
	// hosted are the selections with pods in the network of a host.
	hosted smallmap.Set[*selection]
}

// join puts a class into a selection.
func (m *membership) join(s *selection, c *class) {
	s.classes.Add(c)
	c.selections.Add(s)
	m.moved(s, c, 1)
}

// part removes a class from a selection.
func (m *membership) part(s *selection, c *class) {
	s.classes.Remove(c)
	c.selections.Remove(s)
	m.moved(s, c, -1)
}

func (m *membership) moved(s *selection, c *class, n int32) {
	if s.policies.Len() > 0 || s.stale {
		m.dirty.class(c)
	}
	m.countLocals(s, int(n)*len(c.pods[local]))
	if len(c.pods[host]) > 0 {
		m.countHosts(s, int(n))
	}
	m.dirty.egress(s)
	if s.addresses == nil && s.ports.Len() == 0 {
		return
	}
	m.podsOf(c, func(p *pod) { m.count(s, &p.podState, n) })
}

// contribute counts a pod in all selections of its class: n is 1 or -1.
func (m *membership) contribute(p *podState, n int32) {
	if p.place == host {
		if before := len(p.class.pods[host]) - max(0, int(n)); before == 0 { // its first, or its last
			for s := range p.class.selections.All() {
				m.countHosts(s, int(n))
			}
		}
		return
	}
	for s := range p.class.selections.All() {
		if p.place == local {
			m.countLocals(s, int(n))
		}
		m.dirty.egress(s)
		m.count(s, p, n)
	}
}

// countLocals counts local pods of a selection. Its policies apply to this node while there
// is one.
func (m *membership) countLocals(s *selection, n int) {
	before := s.locals
	s.locals += n
	if before > 0 == (s.locals > 0) {
		return
	}
	for p := range s.policies.All() {
		m.dirty.policy(p)
	}
}

// countHosts counts classes of a selection with pods in the network of a host.
func (m *membership) countHosts(s *selection, n int) {
	m.work.Visits++
	s.hosts += n
	if s.hosts > 0 {
		m.hosted.Add(s)
	} else {
		m.hosted.Remove(s)
	}
}

// count counts the pod's members in the groups of a selection.
func (m *membership) count(s *selection, p *podState, n int32) {
	if s.addresses != nil {
		m.countAddresses(s.addresses, p, n)
	}
	if s.ports.Len() == 0 {
		return
	}
	for _, port := range p.ports {
		if g := s.ports.Get(port.PortName); g != nil {
			m.countPort(g, p, port.number, n)
		}
	}
}

// fill counts the pods of the classes into a new group of the selection.
func (m *membership) fill(g *group, s *selection) {
	for c := range s.classes.All() {
		m.podsOf(c, func(p *pod) { m.countIn(g, &p.podState) })
	}
}

// countIn counts a pod into a new group.
func (m *membership) countIn(g *group, p *podState) {
	if g.Kind == model.Addresses {
		m.countAddresses(g, p, 1)
		return
	}
	for _, port := range p.ports {
		if port.PortName == g.port {
			m.countPort(g, p, port.number, 1)
		}
	}
}

func (m *membership) countAddresses(g *group, p *podState, n int32) {
	for _, a := range p.addresses {
		m.countMember(g, model.AddressMember(a), n)
	}
}

func (m *membership) countPort(g *group, p *podState, number uint16, n int32) {
	for _, a := range p.addresses {
		member := model.AddressMember(a)
		member.Protocol, member.Port = g.port.Protocol, number
		m.countMember(g, member, n)
	}
}

func (m *membership) countMember(g *group, member model.Member, n int32) {
	m.work.Members++
	before := g.counts.Get(member)
	after := before + n
	if after > 0 {
		g.counts.Put(member, after)
	} else {
		g.counts.Remove(member)
	}
	if g.emitted && before > 0 != (after > 0) && !g.was.Has(member) {
		g.was.Put(member, before > 0)
		m.dirty.group(g)
	}
}

// podsOf visits the pods of a class that are members of groups.
func (m *membership) podsOf(c *class, visit func(*pod)) {
	for _, pods := range [...][]*pod{c.pods[remote], c.pods[local]} {
		m.work.Visits += uint64(len(pods))
		for _, p := range pods {
			visit(p)
		}
	}
}
