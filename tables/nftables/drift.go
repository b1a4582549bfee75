package nftables

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
	"github.com/felixlike/felixlike/tables/nftables/watch"
)

// learn updates the known state: by a full read if nothing is known or the news concern
// the whole table, else by reading the objects that the news name. Without news it reads
// nothing. It reports whether it was a full read.
//
// First it closes gaps that leave pods without policy: see closeGap.
func (t *Table) learn(result *tables.Result) (full bool, err error) {
	fresh := t.log.Take()
	if t.known && fresh.Empty() {
		return false, nil
	}
	t.pending.Merge(fresh)
	exists, err := t.closeGap(&fresh, result)
	if err != nil {
		return false, err
	}
	if t.known && exists && !fresh.NeedFullRead() {
		if complete, err := t.reread(fresh); err != nil || complete {
			return false, err
		}
	}
	return true, t.learnAll(result)
}

// learnAll reads the whole table. If there is none, it comes with the guard.
func (t *Table) learnAll(result *tables.Result) (err error) {
	if t.generation, err = t.conn.Generation(); err != nil {
		return err
	}
	t.pending.Merge(t.log.BeginRead(t.generation))
	found, err := t.conn.Read(t.options.Table)
	if err != nil {
		return err
	}
	state := found
	switch {
	case found.Dormant: // since closeGap looked
		err = t.wake(result)
	case !found.Exists && len(t.options.Guard) > 0:
		state, err = t.raiseGuard(result, kernel.Op{Kind: kernel.AddTable})
	}
	if err != nil {
		return err
	}
	if t.trusted {
		t.compare(found)
	}
	t.adopt(state)
	t.known, t.trusted = true, true
	return nil
}

// overtaken reports whether the kernel may have refused a commit only because another
// program was faster: the known state was not just read, or the ruleset has changed
// since.
func (t *Table) overtaken(err error, justRead bool) bool {
	var refused *kernel.RefusedError
	if !errors.As(err, &refused) {
		return false
	}
	if !justRead {
		return true
	}
	if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EBUSY) {
		return false
	}
	now, err := t.conn.Generation()
	return err == nil && now != t.generation
}

// objectKey names an object. Sets and maps share their names.
type objectKey struct {
	kind string // "table", "chain" or "set"
	name string
}

// damage is a pending repair.
type damage struct {
	tables.Repair
	note watch.Change
}

// damaged records a difference of an object. Time and author are those of the note;
// without one, of the first note of all.
func (t *Table) damaged(key objectKey, object, what string, o watch.Change) {
	if o == (watch.Change{}) {
		if o, _ = t.pending.First(); o == (watch.Change{}) {
			o.At = time.Now()
		}
	}
	d, again := t.repairs[key]
	switch {
	case !again:
		d = damage{tables.Repair{Object: object, Name: key.name, What: what, Noticed: o.At}, o}
	case d.What != what:
		d.What += ", then " + what
	}
	t.repairs[key] = d
}

// damagedTable records a difference of the table as a whole.
func (t *Table) damagedTable(what string) {
	var o watch.Change
	if t.pending.Table != nil {
		o = *t.pending.Table
	}
	t.damaged(objectKey{"table", t.options.Table}, "table", what, o)
}

// compare records the differences between the read and the known state.
func (t *Table) compare(state *kernel.State) {
	switch {
	case t.exists && !state.Exists:
		t.damagedTable("deleted")
		return
	case t.exists && len(state.Chains)+len(state.Sets) == 0 && t.holdsSomething():
		t.damagedTable("emptied")
		return
	}
	for name := range t.chains {
		if state.Chains[name] == nil {
			t.compareChain(name, nil, t.pending)
		}
	}
	for name, found := range state.Chains {
		t.compareChain(name, found, t.pending)
	}
	for _, s := range t.sets {
		t.compareSet(s, state.Sets[s.name], t.pending)
	}
	for name, found := range state.Sets {
		if t.sets[name] == nil {
			t.compareSet(newSet(name), found, t.pending)
		}
	}
}

func (t *Table) holdsSomething() bool {
	for _, c := range t.chains {
		if c.have != nil {
			return true
		}
	}
	for _, s := range t.sets {
		if s.have != nil {
			return true
		}
	}
	return false
}

func (t *Table) compareChain(name string, found *kernel.Chain, heard watch.Changes) {
	var known *kernel.Chain
	if c := t.chains[name]; c != nil {
		known = c.have
	}
	if what := chainDifferences(known, found); what != "" {
		t.damaged(objectKey{"chain", name}, "chain", what, heard.Chains[name])
	}
}

func (t *Table) compareSet(s *set, found *kernel.Set, heard watch.Changes) {
	noun := s.shape.Noun()
	if s.have == nil && found != nil {
		noun = found.Shape.Noun()
	}
	if what := s.differences(found); what != "" {
		t.damaged(objectKey{"set", s.name}, noun, what, heard.Sets[s.name])
	}
}

// keepNeeded drops the damage that the plan does not touch: the other program has
// undone it, or its change was desired anyway.
func (t *Table) keepNeeded(p *plan) {
	if len(t.repairs) == 0 {
		return
	}
	touched := map[objectKey]bool{}
	for _, g := range append(p.head[:len(p.head):len(p.head)], p.tail) {
		for _, o := range g {
			touched[keyOf(o.About(t.options.Table))] = true
		}
	}
	maps.DeleteFunc(t.repairs, func(key objectKey, _ damage) bool {
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
func (t *Table) repaired() []tables.Repair {
	if !t.pending.Empty() {
		t.pending = watch.NewChanges()
	}
	if len(t.repairs) == 0 {
		return nil
	}
	out := make([]tables.Repair, 0, len(t.repairs))
	authors := map[uint32]string{}
	for _, d := range t.repairs {
		if g := d.note.Generation; g != 0 {
			if _, asked := authors[g]; !asked {
				authors[g] = t.log.Author(g, authorWait)
			}
			d.By = authors[g]
		}
		out = append(out, d.Repair)
	}
	clear(t.repairs)
	slices.SortFunc(out, func(a, b tables.Repair) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Name, b.Name))
	})
	return out
}
