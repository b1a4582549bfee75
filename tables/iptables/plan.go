package iptables

import (
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables/edit"
)

// plan compares what is wanted with what the tables of a family hold, and
// writes the script that makes them equal. Without a difference it is empty.
//
// The names of rules are their numbers, which are right because nobody else has
// business in our chains. In the kernel's own chains, which others change at any
// time, rules are inserted at the top and deleted by their whole text.
func (t *Table) plan(f model.Family) *script {
	s := &script{entries: map[entry]*entered{}}
	names := t.toCompare(f)
	for _, p := range placesOf(f) {
		t.planPlace(s, p, names)
	}
	return s
}

// toCompare returns the names of the chains that may not be as wanted.
func (t *Table) toCompare(f model.Family) []string {
	if t.state[f].all {
		return sorted(t.chains)
	}
	return sorted(t.touched)
}

// planPlace writes the section of one table. Chains are created before rules
// lead to them, and deleted when no rule does any more. The ways in come first:
// then the kernel checks each rule as it comes, and the one that it names as
// closing a loop is the one that does.
func (t *Table) planPlace(s *script, p place, names []string) {
	section := &script{}
	var bases, regular, remove []*chain
	for _, name := range names {
		c := t.chains[name]
		switch {
		case c == nil:
		case c.lives.has(p):
			if c.have[p] == nil {
				section.command(about{place: p}, ":%s - [0:0]", KernelName(name))
			}
			if c.want.Hook != nil {
				bases = append(bases, c)
			} else {
				regular = append(regular, c)
			}
		case c.have[p] != nil && t.holding == nil:
			remove = append(remove, c)
		}
	}
	t.planEntries(section, p)
	for _, c := range append(bases, regular...) {
		t.planChain(section, c, p)
	}
	planRemoval(section, remove, p)
	s.join(section, p)
}

// join adds a section, if it has anything to do.
func (s *script) join(section *script, p place) {
	s.changes = append(s.changes, section.changes...)
	for e, now := range section.entries {
		s.entries[e] = now
	}
	if section.result.Messages == 0 {
		return
	}
	s.sections++
	s.line(about{place: p}, "*%s", p.table())
	s.text.WriteString(section.text.String())
	s.about = append(s.about, section.about...)
	s.line(about{place: p}, "COMMIT")
	s.result.Messages += section.result.Messages
	s.result.RulesAdded += section.result.RulesAdded
	s.result.RulesDeleted += section.result.RulesDeleted
}

// planChain edits a chain by the fewest rules.
func (t *Table) planChain(s *script, c *chain, p place) {
	var old []string
	if c.have[p] != nil {
		if t.holds(c) {
			return
		}
		old = c.have[p].hashes
	}
	want := t.content(c, p)
	now := &held{hashes: want.hashes, pinned: c.have[p] != nil && c.have[p].pinned}
	s.changes = append(s.changes, change{c, p, now})
	if slices.Equal(old, want.hashes) {
		return
	}
	name, length := KernelName(c.name), len(old)
	for _, step := range edit.Minimal(old, want.hashes).Steps() {
		if step.Op == edit.Delete {
			s.command(about{place: p}, "-D %s %d", name, step.At+1)
			s.result.RulesDeleted++
			length--
			continue
		}
		hash := want.hashes[step.New]
		text, a := render(want.rules[step.New], hash), about{place: p, chain: c.name, hash: hash}
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
// lead to our base chains. Those of others keep their order and their places
// behind.
func (t *Table) planEntries(s *script, p place) {
	s.entries = map[entry]*entered{}
	wanted, have := t.entriesOf(p), t.state[p.family()].entries
	all := map[entry]bool{}
	for e := range wanted {
		all[e] = true
	}
	for e := range have {
		all[e] = all[e] || e.table == p.table()
	}
	for _, e := range sortedEntries(all) {
		texts, now := wanted[e], have[e]
		if now == nil {
			now = &entered{}
		}
		if now.first >= len(texts) && slices.EqualFunc(now.texts, texts, same) {
			continue
		}
		for _, text := range now.texts {
			s.command(about{place: p, entry: true}, "-D %s %s", e.chain, text)
			s.result.RulesDeleted++
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
		if len(c.have[p].hashes) > 0 {
			s.command(about{place: p}, "-F %s", KernelName(c.name))
			s.result.RulesDeleted += len(c.have[p].hashes)
		}
	}
	for _, c := range remove {
		if c.have[p].pinned {
			s.changes = append(s.changes, change{c, p, &held{pinned: true}})
			continue
		}
		s.command(about{place: p}, "-X %s", KernelName(c.name))
		s.changes = append(s.changes, change{c, p, nil})
	}
}
