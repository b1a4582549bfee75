package iptables

import (
	"context"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
)

// reader reads the tables of the kernel into the observed state.
type reader struct {
	*observed
	quarantine *quarantine
	drift      *drift
	tools      *tools
	watcher    *watcher
}

// refresh reads a family if its state is not known, and updates the known state. It
// reports whether it has read.
func (r *reader) refresh(ctx context.Context, f model.Family) (read bool, err error) {
	state := r.state[f]
	if state.known {
		return false, nil
	}
	r.watcher.beforeRead(f)
	s, err := r.tools.read(ctx, f)
	if err != nil {
		return false, err
	}
	r.counted = false
	altered := map[learnedKey]string{}
	for _, p := range placesOf(f) {
		found := &s.tables[p.table()]
		for name := range found.chains {
			r.chain(name)
		}
		for name, c := range r.chains {
			now := r.observe(c, p, found.chains[name], altered)
			if state.trusted {
				r.drift.addChain(c, p, now, altered)
			}
			c.observed[p] = now
		}
	}
	entries := map[entry]*entered{}
	for k := range kernelTables {
		for chain, e := range s.tables[k].entries {
			entries[entry{k, chain}] = e
		}
	}
	if state.trusted {
		r.drift.addEntries(f, state.entries, entries)
	}
	*state = familyState{known: true, trusted: true, fresh: true, all: true, entries: entries, altered: altered, hidden: s.hidden}
	r.watcher.afterRead(f)
	return true, nil
}

// observe returns the observed state of a chain. The hash of a rule counts only if its
// text equals the one that we would write, where the text is known.
func (r *reader) observe(c *chain, p place, found *savedChain, altered map[learnedKey]string) *observedChain {
	if found == nil {
		return nil
	}
	now := &observedChain{pinned: found.pinned, hashes: make([]string, len(found.rules))}
	texts := r.expected(c, p)
	for i, rule := range found.rules {
		desired, ok := texts[rule.hash]
		if !ok {
			// Not desired here, but a rule of ours by its comment.
			now.hashes[i] = strings.Clone(rule.hash)
			continue
		}
		key := learnedKey{p, c.name, desired.hash}
		if rule.hidden || same(rule.text, desired.text) || rule.text == r.learned[key] {
			now.hashes[i] = desired.hash
		} else {
			altered[key] = strings.Clone(rule.text)
		}
	}
	return now
}

// expectedRule is a rule as we would write it.
type expectedRule struct{ hash, text string }

// expected returns the texts of the rules that we may have written into a chain, by
// hash: the desired ones, and those of the closed chain.
func (r *reader) expected(c *chain, p place) map[string]expectedRule {
	if c.desired == nil {
		return nil
	}
	texts := make(map[string]expectedRule, len(c.hashes)+1)
	for i, rule := range c.desired.Rules {
		if hash := c.hashes[i]; texts[hash].text == "" && inFamily(rule, p.family()) {
			texts[hash] = expectedRule{hash, render(rule, hash)}
		}
	}
	if closed, why := r.quarantine.closed(c); closed {
		instead := dropOnly(p, why)
		for i, rule := range instead.rules {
			texts[instead.hashes[i]] = expectedRule{instead.hashes[i], render(rule, instead.hashes[i])}
		}
	}
	return texts
}

// learn reads, after a write, the rules whose text was not ours before. If a rule still
// has another text, then the tool prints it so: learn keeps the text, and Apply does not
// write the rule again.
func (r *reader) learn(ctx context.Context, f model.Family) error {
	state := r.state[f]
	if len(state.altered) == 0 {
		return nil
	}
	s, err := r.tools.read(ctx, f)
	if err != nil {
		return err
	}
	for key, before := range state.altered {
		if r.quarantine.holds(key.chain) {
			continue // its rules are still as they were found
		}
		delete(state.altered, key)
		found := s.tables[key.place.table()].chains[key.chain]
		if found == nil {
			continue
		}
		i := slices.IndexFunc(found.rules, func(rule savedRule) bool { return rule.hash == key.hash })
		if i < 0 {
			continue
		}
		desired, ok := r.expected(r.chain(key.chain), key.place)[key.hash]
		if ok && !same(found.rules[i].text, desired.text) {
			r.learned[key] = strings.Clone(found.rules[i].text)
			if found.rules[i].text == before {
				r.drift.removeAltered(key)
			}
		}
	}
	return nil
}
