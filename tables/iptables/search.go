package iptables

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// search finds the chains that the kernel refuses if the tool names none, and
// quarantines them. It holds back all chains of the failed write, unchanged or closed,
// and admits them again by halves. An accepted half stays admitted, a refused one is
// halved again until one chain is left.
func (t *Table) search(ctx context.Context, f *failure, out *outcome) error {
	suspects := t.suspects()
	t.holding = map[string]bool{}
	for _, name := range suspects {
		t.holding[name] = true
	}
	defer func() { t.holding = nil }()
	if err := t.attempt(ctx, out); err != nil {
		// It is none of them.
		return err
	}
	found := 0
	if err := t.halve(ctx, suspects, out, &found); err != nil {
		return err
	}
	if found == 0 {
		return errors.Join(errors.New("what has failed goes through in parts"), f)
	}
	return nil
}

// suspects are the regular chains of the writes, of both families. A refused chain of
// the other family would else fail every try here, and the search would find nothing.
func (t *Table) suspects() []string {
	var names []string
	seen := map[string]bool{}
	for p := range places {
		if !slices.Contains(t.families, p.family()) {
			continue
		}
		for _, name := range t.toCompare(p.family()) {
			c := t.chains[name]
			if c == nil || c.want == nil || c.want.Hook != nil || !c.lives.has(p) || t.shut[name] != nil || seen[name] {
				continue
			}
			if c.have[p] == nil || !slices.Equal(c.have[p].hashes, t.content(c, p).hashes) {
				names, seen[name] = append(names, name), true
			}
		}
	}
	return names
}

// halve lets the chains in, or finds those that the kernel refuses.
func (t *Table) halve(ctx context.Context, names []string, out *outcome, found *int) error {
	for _, name := range names {
		delete(t.holding, name)
	}
	err := t.attempt(ctx, out)
	var f *failure
	switch {
	case err == nil || len(names) == 0:
		return err
	case !errors.As(err, &f) || !f.blames:
		return err
	case len(names) == 1:
		*found++
		rule := ""
		if f.about.chain == names[0] {
			rule = t.ruleName(f.about)
		}
		t.refuse(names[0], rule, t.why(names[0], f))
		if err := t.attempt(ctx, out); err != nil {
			// Nor is it taken closed: it is not the chain.
			t.forgive(names[0])
			return err
		}
		return nil
	}
	for _, name := range names {
		t.holding[name] = true
	}
	half := len(names) / 2
	if err := t.halve(ctx, names[:half], out, found); err != nil {
		return err
	}
	return t.halve(ctx, names[half:], out, found)
}

// why says why a chain is refused. The tools have no good word for a loop, or none.
func (t *Table) why(name string, f *failure) string {
	if loop := t.loop(name); loop != nil {
		return "it leads back to itself: " + strings.Join(loop, " > ")
	}
	return f.err.reason()
}

// loop returns the shortest way from a chain to itself, or nil.
func (t *Table) loop(name string) []string {
	from := map[string]string{}
	for todo := []string{name}; len(todo) > 0; todo = todo[1:] {
		c := t.chains[todo[0]]
		if c == nil || t.refused[c.name] != nil {
			continue
		}
		for _, f := range t.families {
			for _, to := range c.leads[f] {
				if from[to] != "" {
					continue
				}
				from[to] = c.name
				todo = append(todo, to)
			}
		}
	}
	if from[name] == "" {
		return nil
	}
	way := []string{name}
	for at := from[name]; at != name; at = from[at] {
		way = append(way, at)
	}
	way = append(way, name)
	slices.Reverse(way)
	return way
}
