package compare

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/tables/edit"
)

// Op is the kind of change of a rule, an element or a flow.
type Op string

// The kinds of change.
const (
	Added   Op = "added"
	Removed Op = "removed"
	// Edited has another text in the same place, Moved the same in another place
	// (of a flow: another priority).
	Edited Op = "edited"
	Moved  Op = "moved"
)

// Change is one difference.
type Change struct {
	Op Op `json:"op"`
	// Kind is "rule", "element", "flow", "hook" or "type".
	Kind string `json:"kind"`
	// Before and After are the texts, as the tool writes them; one is empty if there
	// is no such side.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// Note names the subject of the rule, element or flow.
	Note string `json:"note,omitempty"`
}

// Object is a chain, a set or a table of flows that differs.
type Object struct {
	// Kind is "chain", "set", "map", "ipset" or "flows"; In is the table that it is
	// in, if it is in one.
	Kind string `json:"kind"`
	In   string `json:"in,omitempty"`
	Name string `json:"name"`
	// Op is Added, Removed or Edited.
	Op      Op       `json:"op"`
	Note    string   `json:"note,omitempty"`
	Changes []Change `json:"changes,omitempty"`
}

// Sides are the two states to compare, with functions that name their objects.
type Sides struct {
	Before, After         *dump.State
	NoteBefore, NoteAfter func(object any) string
}

// Structure compares two canonical states object by object. No difference is an
// empty list.
func Structure(s Sides, o Options) []Object {
	d := &differ{Sides: s, options: o}
	d.tables()
	d.sets("ipset", "", s.Before.IPSets, s.After.IPSets)
	d.flows()
	return d.objects
}

type differ struct {
	Sides
	options Options
	objects []Object
}

// note names an object by the later side that has it.
func (d *differ) note(before, after any, hasAfter bool) string {
	if hasAfter {
		return d.NoteAfter(after)
	}
	return d.NoteBefore(before)
}

func (d *differ) add(o Object) {
	if o.Op != Edited || len(o.Changes) > 0 {
		d.objects = append(d.objects, o)
	}
}

// paired is something that either or both sides have, by name.
type paired[T any] struct{ before, after *T }

// pair pairs objects with equal keys, in the order of the keys.
func pair[T any](before, after []*T, key func(*T) string) []paired[T] {
	byKey := map[string]*paired[T]{}
	var keys []string
	find := func(t *T) *paired[T] {
		k := key(t)
		if byKey[k] == nil {
			byKey[k] = &paired[T]{}
			keys = append(keys, k)
		}
		return byKey[k]
	}
	for _, t := range before {
		find(t).before = t
	}
	for _, t := range after {
		find(t).after = t
	}
	slices.Sort(keys)
	out := make([]paired[T], len(keys))
	for i, k := range keys {
		out[i] = *byKey[k]
	}
	return out
}

// op returns the kind of change of a pair.
func (p paired[T]) op() Op {
	switch {
	case p.before == nil:
		return Added
	case p.after == nil:
		return Removed
	}
	return Edited
}

func (d *differ) tables() {
	title := func(t *dump.Table) string { return fmt.Sprintf("%s %s %s", t.Dialect, t.Family, t.Name) }
	for _, p := range pair(d.Before.Tables, d.After.Tables, title) {
		before, after := p.before, p.after
		one := cmp.Or(after, before)
		if before == nil {
			before = &dump.Table{Dialect: one.Dialect}
		}
		if after == nil {
			after = &dump.Table{Dialect: one.Dialect}
		}
		in := "table " + one.Family + " " + one.Name
		if one.Dialect == dump.IPTables {
			in = one.Name + " of IPv" + one.IPFamily().String()
		}
		d.chains(in, one.Dialect, before.Chains, after.Chains)
		d.sets("set", in, before.Sets, after.Sets)
		d.foreign(in, before.Foreign, after.Foreign)
	}
}

func (d *differ) chains(in string, dialect dump.Dialect, before, after []*dump.Chain) {
	for _, p := range pair(before, after, func(c *dump.Chain) string { return c.Name }) {
		one := cmp.Or(p.after, p.before)
		o := Object{Kind: "chain", In: in, Name: one.Name, Op: p.op(), Note: d.note(p.before, p.after, p.after != nil)}
		var old, now []dump.Rule
		if p.before != nil {
			old = p.before.Rules
		}
		if p.after != nil {
			now = p.after.Rules
		}
		if p.before != nil && p.after != nil {
			if a, b := hookText(p.before), hookText(p.after); a != b {
				o.Changes = append(o.Changes, Change{Op: Edited, Kind: "hook", Before: a, After: b})
			}
		}
		o.Changes = append(o.Changes, d.rules(dialect, old, now)...)
		d.add(o)
	}
}

func hookText(c *dump.Chain) string {
	if c.Hook == nil {
		return "no hook"
	}
	device := ""
	if c.Hook.Device != "" {
		device = " device " + c.Hook.Device
	}
	return fmt.Sprintf("%s hook %s%s priority %d policy %s", c.Hook.Type, c.Hook.Point, device, c.Hook.Priority, c.Policy)
}

// text writes a rule in the language of its table.
func (d *differ) text(dialect dump.Dialect, r *dump.Rule) string {
	if dialect == dump.NFT {
		if !d.options.Counters {
			r = withoutCounter(r)
		}
		return r.NFT(d.options.Counters)
	}
	if d.options.Counters {
		return fmt.Sprintf("[%d:%d] %s", r.Packets, r.Bytes, r.IPTables())
	}
	return r.IPTables()
}

// withoutCounter returns the rule as if it had no counter, which says nothing
// where counters are not compared.
func withoutCounter(r *dump.Rule) *dump.Rule {
	bare := *r
	bare.Counted = r.Foreign == "counter"
	return &bare
}

// rules finds the fewest changes. A rule that was removed in one place and added in
// another has moved; a rule in place of another with the same purpose was edited.
func (d *differ) rules(dialect dump.Dialect, before, after []dump.Rule) []Change {
	texts := func(all []dump.Rule) []string {
		out := make([]string, len(all))
		for i := range all {
			out[i] = d.text(dialect, &all[i])
		}
		return out
	}
	old, now := texts(before), texts(after)
	script := edit.Minimal(old, now)
	gone := map[string][]int{}    // by text
	purpose := map[string][]int{} // by comment
	open := map[int]bool{}
	for _, i := range script.Deletes {
		gone[old[i]] = append(gone[old[i]], i)
		purpose[before[i].Comment] = append(purpose[before[i].Comment], i)
		open[i] = true
	}
	var all []Change
	var added []int
	for j, kept := range script.Kept {
		if kept >= 0 {
			continue
		}
		if i, ok := take(gone[now[j]], open); ok {
			delete(open, i)
			all = append(all, Change{
				Op: Moved, Kind: "rule", Before: fmt.Sprintf("place %d", i+1), After: now[j],
				Note: joinNotes(fmt.Sprintf("from place %d to %d", i+1, j+1), d.note(nil, &after[j], true)),
			})
			continue
		}
		added = append(added, j)
	}
	for _, j := range added {
		c := Change{Op: Added, Kind: "rule", After: now[j], Note: d.note(nil, &after[j], true)}
		if i, ok := take(purpose[after[j].Comment], open); ok && after[j].Comment != "" {
			delete(open, i)
			c.Op, c.Before = Edited, old[i]
		}
		all = append(all, c)
	}
	for _, i := range script.Deletes {
		if open[i] {
			all = append(all, Change{Op: Removed, Kind: "rule", Before: old[i], Note: d.note(&before[i], nil, false)})
		}
	}
	return all
}

// take returns the first of the indices that is open.
func take(from []int, open map[int]bool) (int, bool) {
	for _, i := range from {
		if open[i] {
			return i, true
		}
	}
	return 0, false
}

func joinNotes(a, b string) string {
	if b == "" {
		return a
	}
	return a + "; " + b
}
