package grants

import (
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// use is a rule in a list.
type use struct {
	list *list
	rule *rule
}

// ledger counts for each grant the rules and groups that give it.
type ledger struct {
	counts map[model.Grant]int
	// changed are the grants with other counts since the last settle, and whether they were programmed.
	changed map[model.Grant]bool
	// uses are the rules of lists with a group as a peer; holders are the identities of the addresses in a group.
	uses    map[model.GroupID]map[use]struct{}
	holders map[model.GroupID]map[*identity]struct{}
	limit   int
}

func newLedger(bound int) *ledger {
	return &ledger{
		counts: map[model.Grant]int{}, changed: map[model.Grant]bool{}, uses: map[model.GroupID]map[use]struct{}{},
		holders: map[model.GroupID]map[*identity]struct{}{}, limit: bound,
	}
}

// full reports whether there are too many grants. From then on it counts no more, until it forgets.
func (l *ledger) full() bool { return len(l.counts) > l.limit }

// active reports whether a rule has the group as a peer.
func (l *ledger) active(id model.GroupID) bool { return len(l.uses[id]) > 0 }

// add gives a list the grants of a rule, and returns the groups that no rule had before.
func (l *ledger) add(u use) (began []model.GroupID) {
	for _, id := range u.rule.peers {
		if l.uses[id] == nil {
			l.uses[id] = map[use]struct{}{}
			began = append(began, id)
		}
		l.uses[id][u] = struct{}{}
	}
	l.countAll(u)
	return began
}

// remove takes the grants of a rule from a list, and returns the groups that no rule has any more.
func (l *ledger) remove(u use) (ended []model.GroupID) {
	if u.rule.anyPeer {
		l.count(u, 0, -1)
	}
	for _, id := range u.rule.peers {
		for i := range l.holders[id] {
			l.count(u, uint32(i.number), -1)
		}
		delete(l.uses[id], u)
		if len(l.uses[id]) == 0 {
			delete(l.uses, id)
			ended = append(ended, id)
		}
	}
	return ended
}

// enter gives a new identity the grants of its groups.
func (l *ledger) enter(i *identity) {
	for _, id := range i.groups {
		if l.holders[id] == nil {
			l.holders[id] = map[*identity]struct{}{}
		}
		l.holders[id][i] = struct{}{}
		for u := range l.uses[id] {
			l.count(u, uint32(i.number), 1)
		}
	}
}

// leave takes them away.
func (l *ledger) leave(i *identity) {
	for _, id := range i.groups {
		for u := range l.uses[id] {
			l.count(u, uint32(i.number), -1)
		}
		delete(l.holders[id], i)
		if len(l.holders[id]) == 0 {
			delete(l.holders, id)
		}
	}
}

// forget takes all grants away. Those that are programmed are among the changed ones.
func (l *ledger) forget() {
	for g := range l.counts {
		if _, noted := l.changed[g]; !noted {
			l.changed[g] = true
		}
	}
	clear(l.counts)
}

// countAll counts the grants of a rule of a list.
func (l *ledger) countAll(u use) {
	if u.rule.anyPeer {
		l.count(u, 0, 1)
	}
	for _, id := range u.rule.peers {
		for i := range l.holders[id] {
			l.count(u, uint32(i.number), 1)
		}
	}
}

func (l *ledger) count(u use, peers uint32, by int) {
	if l.full() {
		return
	}
	for _, p := range u.rule.ports {
		g := model.Grant{List: uint32(u.list.number), Peers: peers, Protocol: p.protocol, Port: p.number}
		n := l.counts[g]
		if _, noted := l.changed[g]; !noted {
			l.changed[g] = n > 0
		}
		if n += by; n > 0 {
			l.counts[g] = n
		} else {
			delete(l.counts, g)
		}
	}
}

// settle programs the grants that have changed.
func (l *ledger) settle(sets ipsets.Sets) {
	come, gone := map[string][]model.Member{}, map[string][]model.Member{}
	left := len(l.changed)
	// With append alone, a large load would be copied several times.
	add := func(to map[string][]model.Member, set string, m model.Member) {
		if to[set] == nil {
			to[set] = make([]model.Member, 0, left)
		}
		to[set] = append(to[set], m)
	}
	for g, was := range l.changed {
		set := rules.GrantsSet
		if g.Protocol == model.AnyProtocol {
			set = rules.AnyPortGrantsSet
		}
		switch has := l.counts[g] > 0; {
		case has && !was:
			add(come, set, g.Member())
		case was && !has:
			add(gone, set, g.Member())
		}
		left--
	}
	l.changed = map[model.Grant]bool{} // an emptied map keeps its size, and is looked through at each change
	for _, set := range []string{rules.GrantsSet, rules.AnyPortGrantsSet} {
		if len(gone[set]) > 0 {
			sets.RemoveMembers(set, gone[set])
		}
		if len(come[set]) > 0 {
			sets.AddMembers(set, come[set])
		}
	}
}
