package iptables

import (
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables/edit"
)

// plan compares the desired state with the observed state of a family, and writes the
// script that makes them equal. Without a difference it is empty.
//
// Rules of our chains are named by their numbers: no other program has rules there. In
// the kernel's own chains, which others change at any time, rules are inserted at the top
// and deleted by their whole text.
//
// A table that the tool cannot show has a script to itself, so that what fails there does not stop the others.
func (l *planner) plan(f model.Family) []*script {
	shown := newScript()
	all, names := []*script{shown}, l.candidates(f)
	for _, p := range placesOf(f) {
		s := shown
		if slices.Contains(l.state[f].hidden, p.table()) {
			s = newScript()
			s.hidden = true
			all = append(all, s)
		}
		l.planPlace(s, p, names)
	}
	return all
}

// planPlace writes the section of one table. Chains are created before rules
// lead to them, and deleted when no rule does any more. The rules that lead to base chains
// come first: then the kernel checks each rule as it comes, and names the rule that
// closes a loop.
func (l *planner) planPlace(s *script, p place, names []string) {
	section := newScript()
	section.hidden = s.hidden
	var bases, regular, remove []*chain
	for _, name := range names {
		c := l.chains[name]
		switch {
		case c == nil:
		case c.places.has(p):
			if c.observed[p] == nil {
				section.command(about{place: p}, ":%s - [0:0]", KernelName(name))
			}
			if c.desired.Hook != nil {
				bases = append(bases, c)
			} else {
				regular = append(regular, c)
			}
		case c.observed[p] != nil && !l.quarantine.searching():
			remove = append(remove, c)
		}
	}
	l.planEntries(section, p)
	for _, c := range append(bases, regular...) {
		l.planChain(section, c, p)
	}
	planRemoval(section, remove, p)
	s.join(section, p)
}

// planChain edits a chain by the fewest rules.
func (l *planner) planChain(s *script, c *chain, p place) {
	var old []string
	if c.observed[p] != nil {
		if l.quarantine.holds(c.name) {
			return
		}
		old = c.observed[p].hashes
	}
	desired := l.quarantine.content(c, p)
	now := &observedChain{hashes: desired.hashes, pinned: c.observed[p] != nil && c.observed[p].pinned}
	s.changes = append(s.changes, change{c, p, now})
	if slices.Equal(old, desired.hashes) {
		return
	}
	name, length := KernelName(c.name), len(old)
	for _, step := range edit.Minimal(old, desired.hashes).Steps() {
		if step.Op == edit.Delete {
			s.command(about{place: p}, "-D %s %d", name, step.At+1)
			s.result.RulesDeleted++
			length--
			continue
		}
		hash := desired.hashes[step.New]
		text, a := render(desired.rules[step.New], hash), about{place: p, chain: c.name, hash: hash}
		s.result.RulesAdded++
		switch {
		case step.Op == edit.Replace:
			s.result.RulesDeleted++
			s.command(a, "-R %s %d %s", name, step.At+1, text)
		case step.At == length:
			s.command(a, "-A %s %s", name, text)
			length++
		default:
			s.command(a, "-I %s %d %s", name, step.At+1, text)
			length++
		}
	}
}

// planEntries makes the kernel's chains of the place begin with the rules that
// lead to our base chains. The rules of other programs stay behind, in their order.
func (l *planner) planEntries(s *script, p place) {
	desired, observed := l.entries(p), l.state[p.family()].entries
	all := map[entry]bool{}
	for e := range desired {
		all[e] = true
	}
	for e := range observed {
		all[e] = all[e] || e.table == p.table()
	}
	for _, e := range sortedEntries(all) {
		texts, now := desired[e], observed[e]
		if now == nil {
			now = &entered{}
		}
		if now.first >= len(texts) && slices.EqualFunc(now.texts, texts, same) {
			continue
		}
		for i, text := range now.texts {
			s.result.RulesDeleted++
			if s.hidden {
				s.deleteHidden(e, now, i, texts)
				continue
			}
			s.command(about{place: p, entry: true}, "-D %s %s", e.chain, text)
		}
		for _, text := range slices.Backward(texts) {
			s.command(about{place: p, entry: true}, "-I %s 1 %s", e.chain, text)
			s.result.RulesAdded++
		}
		s.entries[e] = &entered{texts: texts, first: len(texts)}
	}
}

func sortedEntries(set map[entry]bool) []entry {
	var out []entry
	for e, ours := range set {
		if ours {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b entry) int {
		if a.table != b.table {
			return int(a.table) - int(b.table)
		}
		return slices.Compare([]string{a.chain}, []string{b.chain})
	})
	return out
}

// planRemoval deletes chains; all are emptied first, since they may lead to each
// other. One that a rule of others leads to stays, empty.
func planRemoval(s *script, remove []*chain, p place) {
	for _, c := range remove {
		if len(c.observed[p].hashes) > 0 {
			s.command(about{place: p}, "-F %s", KernelName(c.name))
			s.result.RulesDeleted += len(c.observed[p].hashes)
		}
	}
	for _, c := range remove {
		if c.observed[p].pinned {
			s.changes = append(s.changes, change{c, p, &observedChain{pinned: true}})
			continue
		}
		s.command(about{place: p}, "-X %s", KernelName(c.name))
		s.changes = append(s.changes, change{c, p, nil})
	}
}
