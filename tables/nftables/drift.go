package nftables

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
	"github.com/felixlike/felixlike/tables/nftables/watch"
)

// objectKey names an object. Sets and maps share their names.
type objectKey struct {
	kind string // "table", "chain" or "set"
	name string
}

// drift is the difference that other programs have made to the table.
type drift struct {
	*objects
	log *watch.Log
	// pending are the changes that an Apply has taken from the log, but not repaired yet.
	pending watch.Changes
	repairs map[objectKey]damage
}

// damage is a pending repair.
type damage struct {
	tables.Repair
	note watch.Change
}

// damaged records a difference of an object. Time and author are those of the note;
// without one, of the first note of all.
func (d *drift) damaged(key objectKey, object, what string, o watch.Change) {
	if o == (watch.Change{}) {
		if o, _ = d.pending.First(); o == (watch.Change{}) {
			o.At = time.Now()
		}
	}
	known, again := d.repairs[key]
	switch {
	case !again:
		known = damage{tables.Repair{Object: object, Name: key.name, What: what, Noticed: o.At}, o}
	case known.What != what:
		known.What += ", then " + what
	}
	d.repairs[key] = known
}

// damagedTable records a difference of the table as a whole.
func (d *drift) damagedTable(what string) {
	var o watch.Change
	if d.pending.Table != nil {
		o = *d.pending.Table
	}
	d.damaged(objectKey{"table", d.table}, "table", what, o)
}

// compare records the differences between the read and the known state.
func (d *drift) compare(state *kernel.State) {
	switch {
	case d.exists && !state.Exists:
		d.damagedTable("deleted")
		return
	case d.exists && len(state.Chains)+len(state.Sets) == 0 && d.holdsSomething():
		d.damagedTable("emptied")
		return
	}
	for name := range d.chains {
		if state.Chains[name] == nil {
			d.compareChain(name, nil, d.pending)
		}
	}
	for name, found := range state.Chains {
		d.compareChain(name, found, d.pending)
	}
	for _, s := range d.sets {
		d.compareSet(s, state.Sets[s.name], d.pending)
	}
	for name, found := range state.Sets {
		if d.sets[name] == nil {
			d.compareSet(newSet(name), found, d.pending)
		}
	}
}

func (d *drift) holdsSomething() bool {
	for _, c := range d.chains {
		if c.observed != nil {
			return true
		}
	}
	for _, s := range d.sets {
		if s.observed != nil {
			return true
		}
	}
	return false
}

func (d *drift) compareChain(name string, found *kernel.Chain, changes watch.Changes) {
	var known *kernel.Chain
	if c := d.chains[name]; c != nil {
		known = c.observed
	}
	if what := chainDifferences(known, found); what != "" {
		d.damaged(objectKey{"chain", name}, "chain", what, changes.Chains[name])
	}
}

func (d *drift) compareSet(s *set, found *kernel.Set, changes watch.Changes) {
	noun := s.shape.Noun()
	if s.observed == nil && found != nil {
		noun = found.Shape.Noun()
	}
	if what := s.differences(found); what != "" {
		d.damaged(objectKey{"set", s.name}, noun, what, changes.Sets[s.name])
	}
}

// keepNeeded drops the damage that the plan does not touch: the other program has
// undone it, or its change was desired anyway.
func (d *drift) keepNeeded(p *plan) {
	if len(d.repairs) == 0 {
		return
	}
	touched := map[objectKey]bool{}
	for _, g := range slices.Concat(p.first, p.head, []group{p.tail}) {
		for _, o := range g {
			touched[keyOf(o.About(d.table))] = true
		}
	}
	maps.DeleteFunc(d.repairs, func(key objectKey, _ damage) bool {
		return key.kind != "table" && !touched[key]
	})
}

// keyOf returns the key of the object of an error.
func keyOf(e kernel.ObjectError) objectKey {
	if e.Object == "map" {
		return objectKey{"set", e.Name}
	}
	return objectKey{e.Object, e.Name}
}

// authorWait bounds an Apply's wait for the name of a change's author. The name comes
// with the end of the transaction, which was sent before our own commit began.
const authorWait = 20 * time.Millisecond

// repaired returns the completed repairs, and clears the damage.
func (d *drift) repaired() []tables.Repair {
	if !d.pending.Empty() {
		d.pending = watch.NewChanges()
	}
	if len(d.repairs) == 0 {
		return nil
	}
	out := make([]tables.Repair, 0, len(d.repairs))
	authors := map[uint32]string{}
	for _, r := range d.repairs {
		if g := r.note.Generation; g != 0 {
			if _, asked := authors[g]; !asked {
				authors[g] = d.log.Author(g, authorWait)
			}
			r.By = authors[g]
		}
		out = append(out, r.Repair)
	}
	clear(d.repairs)
	slices.SortFunc(out, func(a, b tables.Repair) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Name, b.Name))
	})
	return out
}
