package iptables

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/edit"
)

// drift holds the foreign changes that no Apply has repaired yet.
type drift struct {
	changes map[changeKey]foreignChange
	now     func() time.Time
}

// changeKey is a chain of ours, or one of the kernel's own, in a place.
type changeKey struct {
	place place
	chain string
	entry bool
}

// foreignChange is the change of a chain by other programs.
type foreignChange struct {
	tables.Drift
	noticed time.Time
}

func newDrift() *drift { return &drift{changes: map[changeKey]foreignChange{}, now: time.Now} }

// repaired lists the changes for the Result of the Apply that has repaired them, and
// forgets them.
func (d *drift) repaired() []tables.Repair {
	var out []tables.Repair
	for key, n := range d.changes {
		out = append(out, tables.Repair{
			Object: "chain", Name: key.chain, What: key.place.String() + ": " + n.String(), Noticed: n.noticed,
		})
	}
	slices.SortFunc(out, func(a, b tables.Repair) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.What, b.What))
	})
	clear(d.changes)
	return out
}

// addChain records the difference between the known state of a chain and the state read.
func (d *drift) addChain(c *chain, p place, now *observedChain, altered map[learnedKey]string) {
	was, n := c.observed[p], foreignChange{noticed: d.now(), Drift: tables.Drift{Part: "rule", Parts: "rules"}}
	switch {
	case was == nil && now == nil:
		return
	case was == nil:
		n.Words = []string{"foreign chain"}
	case now == nil:
		n.Words = []string{"deleted"}
	case slices.Equal(was.hashes, now.hashes):
		return
	default:
		for _, hash := range was.hashes {
			if _, ok := altered[learnedKey{p, c.name, hash}]; ok {
				n.Changed++
			}
		}
		n.Missing = max(0, surplus(was.hashes, now.hashes)-n.Changed)
		n.Foreign = max(0, surplus(now.hashes, was.hashes)-n.Changed)
		if n.Missing+n.Changed+n.Foreign == 0 {
			n.Moved = len(edit.Minimal(was.hashes, now.hashes).Deletes)
		}
	}
	d.changes[changeKey{place: p, chain: c.name}] = n
}

// surplus counts the strings that a has more often than b.
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

// addEntries records the differences between the known rules that lead to our base chains
// and the rules read.
func (d *drift) addEntries(f model.Family, was, now map[entry]*entered) {
	for e, old := range was {
		n := foreignChange{noticed: d.now()}
		switch found := now[e]; {
		case found == nil:
			n.Words = []string{"the rule that leads to " + leadsTo(old.texts) + " is missing"}
		case !slices.EqualFunc(old.texts, found.texts, same):
			n.Words = []string{"the rules that lead to " + leadsTo(old.texts) + " are not as they were"}
		case found.first < len(found.texts):
			n.Words = []string{"the rule that leads to " + leadsTo(old.texts) + " does not come first"}
		default:
			continue
		}
		d.changes[changeKey{place: placeOf(f, e.table), chain: e.chain, entry: true}] = n
	}
}

func leadsTo(texts []string) string {
	var names []string
	for _, text := range texts {
		names = append(names, targetOf(text))
	}
	return strings.Join(names, ", ")
}

// removeAltered takes back that a rule was altered: the tool only prints it in another way.
func (d *drift) removeAltered(key learnedKey) {
	k := changeKey{place: key.place, chain: key.chain}
	n, ok := d.changes[k]
	if !ok || n.Changed == 0 {
		return
	}
	n.Changed--
	if n.Missing+n.Changed+n.Foreign == 0 {
		delete(d.changes, k)
		return
	}
	d.changes[k] = n
}
