package prove

import (
	"slices"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/tables"
)

// sameRules reports whether the rules that a proof of netfilter walks, and the sets that they look up, are the same on both sides. Then packets end the same
// way, and need not be followed. It is false if the walk would refuse something.
func sameRules(a, b *dump.State) bool {
	x, known := walked(a)
	if !known {
		return false
	}
	y, known := walked(b)
	return known && text(x) == text(y)
}

// walked returns the part of a state that a proof of netfilter walks: from the base chains on, up to felixlike's last rule in each, with the sets. known is
// false if it has an object of an unknown form, or one that traffic changes.
func walked(st *dump.State) (part *dump.State, known bool) {
	part = &dump.State{}
	shared := &reach{from: byName(st.IPSets)}
	for _, t := range st.Tables {
		w := shared
		if judged(t) {
			w = &reach{from: byName(t.Sets), unknown: len(t.Foreign) > 0}
		} else if t.Dialect != dump.IPTables {
			continue
		}
		if w.table(t); len(w.found.Chains) > 0 {
			part.Tables = append(part.Tables, w.found)
		}
		if w != shared {
			w.found.Sets = w.to
			shared.unknown = shared.unknown || w.unknown
		}
	}
	part.IPSets = shared.to
	return part, !shared.unknown
}

// reach finds the chains of a table that packets reach, and the sets that these look up.
type reach struct {
	// from are the sets by their names; one that is found becomes nil, and is in to. One that is not listed makes the state unknown, and so
	// does a chain.
	from map[string]*dump.Set
	to   []*dump.Set
	// chains are the chains of the table by their names until they are found, then nil. found has the found ones.
	chains  map[string]*dump.Chain
	found   *dump.Table
	unknown bool
}

func byName(sets []*dump.Set) map[string]*dump.Set {
	all := make(map[string]*dump.Set, len(sets))
	for _, s := range sets {
		all[s.Name] = s
	}
	return all
}

// table finds what packets reach in a table.
func (w *reach) table(t *dump.Table) {
	w.chains, w.found = map[string]*dump.Chain{}, &dump.Table{Dialect: t.Dialect, Family: t.Family, Name: t.Name}
	for _, c := range t.Chains {
		w.chains[c.Name], _ = split(t, c)
	}
	for _, c := range t.Chains {
		if first := w.chains[c.Name]; c.Hook != nil && first != nil && (len(first.Rules) > 0 || first.Policy == "drop") {
			w.unknown = w.unknown || !slices.Contains(hooks(), c.Hook.Point) || slices.ContainsFunc(w.found.Chains, func(o *dump.Chain) bool {
				return o.Hook != nil && o.Hook.Point == c.Hook.Point && o.Hook.Priority == c.Hook.Priority // the listing does not tell which comes first
			})
			w.chain(c.Name)
		}
	}
}

func (w *reach) chain(name string) {
	c, listed := w.chains[name]
	if w.unknown = w.unknown || name != "" && !listed; c == nil {
		return
	}
	w.chains[name], w.found.Chains = nil, append(w.found.Chains, c)
	for i := range c.Rules {
		r := &c.Rules[i]
		w.unknown = w.unknown || r.Foreign != ""
		for _, m := range r.Matches {
			for name := range tables.SetsOf(m) {
				w.set(name)
			}
		}
		w.action(r.Action)
	}
}

func (w *reach) action(a tables.Action) {
	if to, is := a.(tables.Dispatch); is {
		w.set(to.Map)
	}
	w.chain(tables.Target(a))
}

func (w *reach) set(name string) {
	s, listed := w.from[name]
	if w.unknown = w.unknown || !listed; s == nil {
		return
	}
	w.from[name], w.to = nil, append(w.to, s)
	w.unknown = w.unknown || s.Kind == 0 || len(s.Foreign) > 0 || s.Learned()
	for i := range s.Elements {
		w.action(s.Elements[i].Verdict)
	}
}
