package openflow

import (
	"fmt"
	"strings"
)

// group is the flows of one SetFlows call.
type group struct {
	key     string
	render  func() []Flow
	entries []entry
	// uses are the numbers of the HashGroups that the flows use.
	uses []uint32
}

// claim is one group's desired flow for an identity.
type claim struct {
	group *group
	index int32
}

func (c claim) cookie() uint64 { return c.group.entries[c.index].cookie }

func (c claim) rest() uint64 { return c.group.entries[c.index].rest }

func (c claim) flow() (Flow, error) {
	flows, err := c.group.flows()
	if err != nil {
		return Flow{}, err
	}
	return flows[c.index], nil
}

// state is the desired and the observed flow of an identity.
type state struct {
	// claim has no group if no flow is desired.
	claim
	table uint8
	// tampered: the installed flow's content does not have the hash in its cookie.
	tampered bool
	// installed is the cookie of the installed flow, zero if there is none.
	installed uint64
	// has is the rest of the hash of the installed flow's content (see entry.rest).
	has uint64
}

// right reports whether the switch has the desired flow.
func (s state) right() bool {
	if s.group == nil {
		return s.installed == 0
	}
	return s.installed == s.cookie() && s.has == s.rest() && !s.tampered
}

// flows renders the group.
func (g *group) flows() ([]Flow, error) {
	flows := g.render()
	if len(flows) != len(g.entries) {
		return nil, fmt.Errorf("flows of %s: %d were set and %d are rendered", g.key, len(g.entries), len(flows))
	}
	return flows, nil
}

func (c claim) compare(d claim) int {
	if order := strings.Compare(c.group.key, d.group.key); order != 0 {
		return order
	}
	return int(c.index) - int(d.index)
}

// multiset counts cookies; nearly all of them occur once.
type multiset struct {
	once map[uint64]struct{}
	more map[uint64]int
}

func (m multiset) add(n uint64) {
	if _, found := m.once[n]; found {
		m.more[n]++
		return
	}
	m.once[n] = struct{}{}
}

func (m multiset) remove(n uint64) {
	switch m.more[n] {
	case 0:
		delete(m.once, n)
	case 1:
		delete(m.more, n)
	default:
		m.more[n]--
	}
}

func (m multiset) repeated(n uint64) bool { return m.more[n] > 0 }
