package iptables

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// read reads all tables of a family.
func (t *Table) read(ctx context.Context, f model.Family) (*saved, error) {
	out, err := t.tools.dump(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("read the tables of IPv%s: %w", f, err)
	}
	s, err := parseSaved(string(out))
	if err != nil {
		return nil, fmt.Errorf("read the tables of IPv%s: %w", f, err)
	}
	return s, nil
}

// refresh reads a family if its state is not known, and updates the known state.
func (t *Table) refresh(ctx context.Context, f model.Family, out *outcome) error {
	state := t.state[f]
	if state.known {
		return nil
	}
	t.watcher.beforeRead(f)
	s, err := t.read(ctx, f)
	if err != nil {
		return err
	}
	out.result.FullRead = true
	t.counted = false
	altered := map[learnedKey]string{}
	for _, p := range placesOf(f) {
		found := &s.tables[p.table()]
		for name := range found.chains {
			t.chain(name)
		}
		for name, c := range t.chains {
			now := t.judge(c, p, found.chains[name], altered)
			if state.trusted {
				out.noteChain(c, p, now, altered)
			}
			c.have[p] = now
		}
	}
	entries := map[entry]*entered{}
	for k := range kernelTables {
		for chain, e := range s.tables[k].entries {
			entries[entry{k, chain}] = e
		}
	}
	if state.trusted {
		out.noteEntries(f, state.entries, entries)
	}
	*state = familyState{known: true, trusted: true, fresh: true, all: true, entries: entries, altered: altered}
	t.watcher.afterRead(t, f)
	return nil
}

// judge returns the observed state of a chain. The hash of a rule counts only if its
// text equals the one that we would write.
func (t *Table) judge(c *chain, p place, found *savedChain, altered map[learnedKey]string) *held {
	if found == nil {
		return nil
	}
	now := &held{pinned: found.pinned, hashes: make([]string, len(found.rules))}
	texts := t.textsOf(c, p)
	for i, r := range found.rules {
		want, ok := texts[r.hash]
		if !ok {
			// Not desired here, but a rule of ours by its comment.
			now.hashes[i] = strings.Clone(r.hash)
			continue
		}
		key := learnedKey{p, c.name, want.hash}
		if same(r.text, want.text) || r.text == t.learned[key] {
			now.hashes[i] = want.hash
		} else {
			altered[key] = strings.Clone(r.text)
		}
	}
	return now
}

// expected is a rule as we would write it.
type expected struct{ hash, text string }

// textsOf returns the texts of the rules that a chain may hold by our hand, by
// hash: what is wanted of it, and what stands in for that.
func (t *Table) textsOf(c *chain, p place) map[string]expected {
	if c.want == nil {
		return nil
	}
	texts := make(map[string]expected, len(c.hashes)+1)
	for i, r := range c.want.Rules {
		if hash := c.hashes[i]; texts[hash].text == "" && inFamily(r, p.family()) {
			texts[hash] = expected{hash, render(r, hash)}
		}
	}
	if closed, why := t.closed(c); closed {
		instead := standIn(p, why)
		for i, r := range instead.rules {
			texts[instead.hashes[i]] = expected{instead.hashes[i], render(r, instead.hashes[i])}
		}
	}
	return texts
}

// learn looks, after a write, at the rules whose text was not ours before it.
// One that is still not has come back from the tool as it puts it: that is how
// it prints this rule, and it is left alone from now on.
func (t *Table) learn(ctx context.Context, f model.Family, out *outcome) error {
	state := t.state[f]
	if len(state.altered) == 0 {
		return nil
	}
	s, err := t.read(ctx, f)
	if err != nil {
		return err
	}
	for key, before := range state.altered {
		if t.holding[key.chain] {
			continue // its rules are still as they were found
		}
		delete(state.altered, key)
		found := s.tables[key.place.table()].chains[key.chain]
		if found == nil {
			continue
		}
		i := slices.IndexFunc(found.rules, func(r savedRule) bool { return r.hash == key.hash })
		if i < 0 {
			continue
		}
		want, ok := t.textsOf(t.chain(key.chain), key.place)[key.hash]
		if ok && !same(found.rules[i].text, want.text) {
			t.learned[key] = strings.Clone(found.rules[i].text)
			if found.rules[i].text == before {
				out.unnote(key)
			}
		}
	}
	return nil
}

// entriesOf returns our rules that a chain of the kernel has to begin with, as
// texts: the ways into the base chains that are entered there.
func (t *Table) entriesOf(p place) map[entry][]string {
	wanted := map[entry][]string{}
	for _, name := range sorted(t.bases) {
		c := t.chains[name]
		if !c.lives.has(p) {
			continue
		}
		e, err := entryOf(*c.want.Hook)
		if err != nil || e.table != p.table() {
			continue
		}
		way := tables.Rule{Action: tables.Jump{Chain: name}, Comment: "felixlike " + name}
		wanted[e] = append(wanted[e], render(way, way.Hash()))
	}
	return wanted
}
