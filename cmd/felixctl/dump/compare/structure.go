package compare

import (
	"cmp"
	"fmt"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/tables/edit"
)

// Structure compares two canonical states object by object. No difference is an
// empty list.
func Structure(s Sides, o Options) []Object {
	d := &differ{Sides: s, options: o}
	d.tables()
	d.sets("ipset", "", s.Before.IPSets, s.After.IPSets)
	d.flows()
	return d.objects
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
