package iptables

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/edit"
)

// outcome collects what an Apply does, and the notes of the Table.
type outcome struct {
	result tables.Result
	notes  map[noteKey]note
	now    func() time.Time
}

// count adds what a script has done.
func (o *outcome) count(s *script) {
	o.result.Messages += s.result.Messages
	o.result.RulesAdded += s.result.RulesAdded
	o.result.RulesDeleted += s.result.RulesDeleted
}

// finish returns the Result, but for the repairs.
func (o *outcome) finish(t *Table, took time.Duration) tables.Result {
	o.result.Duration = took
	o.result.Rules = t.rules()
	o.result.Refused = t.refusals()
	return o.result
}

// repaired lists what others have changed, for the Result.
func (o *outcome) repaired() []tables.Repair {
	var out []tables.Repair
	for key, n := range o.notes {
		out = append(out, tables.Repair{
			Object: "chain", Name: key.chain, What: key.place.String() + ": " + n.String(), Noticed: n.noticed,
		})
	}
	slices.SortFunc(out, func(a, b tables.Repair) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.What, b.What))
	})
	return out
}

// rules counts what the kernel is known to hold of ours.
func (t *Table) rules() int {
	if !t.counted {
		t.count, t.counted = 0, true
		for _, c := range t.chains {
			for _, h := range c.have {
				if h != nil {
					t.count += len(h.hashes)
				}
			}
		}
	}
	n := t.count
	for _, s := range t.state {
		for _, e := range s.entries {
			n += len(e.texts)
		}
	}
	return n
}

// noteChain compares what a chain was known to hold with what was read.
func (o *outcome) noteChain(c *chain, p place, now *held, altered map[learnedKey]string) {
	was, n := c.have[p], note{noticed: o.now()}
	switch {
	case was == nil && now == nil:
		return
	case was == nil:
		n.words = "foreign chain"
	case now == nil:
		n.words = "deleted"
	case slices.Equal(was.hashes, now.hashes):
		return
	default:
		for _, hash := range was.hashes {
			if _, ok := altered[learnedKey{p, c.name, hash}]; ok {
				n.altered++
			}
		}
		n.missing = max(0, surplus(was.hashes, now.hashes)-n.altered)
		n.foreign = max(0, surplus(now.hashes, was.hashes)-n.altered)
		if n.missing+n.altered+n.foreign == 0 {
			n.moved = len(edit.Minimal(was.hashes, now.hashes).Deletes)
		}
	}
	o.notes[noteKey{place: p, chain: c.name}] = n
}

// surplus counts what a has more than b.
func surplus(a, b []string) int {
	count := map[string]int{}
	for _, s := range b {
		count[s]++
	}
	n := 0
	for _, s := range a {
		if count[s]--; count[s] < 0 {
			n++
		}
	}
	return n
}

// noteEntries compares the ways into our base chains with those that were read.
func (o *outcome) noteEntries(f model.Family, was, now map[entry]*entered) {
	for e, old := range was {
		n := note{noticed: o.now()}
		switch found := now[e]; {
		case found == nil:
			n.words = "the rule that leads to " + leadsTo(old.texts) + " is missing"
		case !slices.EqualFunc(old.texts, found.texts, same):
			n.words = "the rules that lead to " + leadsTo(old.texts) + " are not as they were"
		case found.first < len(found.texts):
			n.words = "the rule that leads to " + leadsTo(old.texts) + " does not come first"
		default:
			continue
		}
		o.notes[noteKey{place: placeOf(f, e.table), chain: e.chain, entry: true}] = n
	}
}

func leadsTo(texts []string) string {
	var names []string
	for _, text := range texts {
		names = append(names, targetOf(text))
	}
	return strings.Join(names, ", ")
}

// unnote takes back that a rule was altered: it has only been printed in
// another way.
func (o *outcome) unnote(key learnedKey) {
	k := noteKey{place: key.place, chain: key.chain}
	n, ok := o.notes[k]
	if !ok || n.altered == 0 {
		return
	}
	n.altered--
	if n.missing+n.altered+n.foreign == 0 {
		delete(o.notes, k)
		return
	}
	o.notes[k] = n
}

// String says in words what was changed.
func (n note) String() string {
	var words []string
	for _, c := range []struct {
		count     int
		one, many string
	}{
		{n.missing, "rule missing", "rules missing"},
		{n.foreign, "foreign rule", "foreign rules"},
		{n.altered, "rule changed", "rules changed"},
		{n.moved, "rule moved", "rules moved"},
	} {
		switch {
		case c.count == 1:
			words = append(words, "1 "+c.one)
		case c.count > 1:
			words = append(words, fmt.Sprintf("%d %s", c.count, c.many))
		}
	}
	if n.words != "" {
		words = append(words, n.words)
	}
	return strings.Join(words, ", ")
}
