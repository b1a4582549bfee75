package compare

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
)

func (d *differ) sets(kind, in string, before, after []*dump.Set) {
	for _, p := range pair(before, after, func(s *dump.Set) string { return s.Name }) {
		one := cmp.Or(p.after, p.before)
		o := Object{Kind: kind, In: in, Name: one.Name, Op: p.op(), Note: d.note(p.before, p.after, p.after != nil)}
		if one.Verdicts || one.Numbers {
			o.Kind = "map"
		}
		if p.before != nil && p.after != nil && p.before.Type != p.after.Type {
			o.Changes = append(o.Changes, Change{Op: Edited, Kind: "type", Before: p.before.Type, After: p.after.Type})
		}
		o.Changes = append(o.Changes, d.elements(p.before, p.after)...)
		d.add(o)
	}
}

// elements compares the elements of two sets, as far as the options ask. An entry of a
// verdict map with a new target is edited.
func (d *differ) elements(before, after *dump.Set) []Change {
	if before == nil {
		before = &dump.Set{}
	}
	if after == nil {
		after = &dump.Set{}
	}
	switch d.options.Elements {
	case dump.None:
		return nil
	case dump.CountOnly:
		a, b := len(before.Elements)+len(before.Foreign), len(after.Elements)+len(after.Foreign)
		if a == b {
			return nil
		}
		return []Change{{Op: Edited, Kind: "element", Before: fmt.Sprintf("%d elements", a), After: fmt.Sprintf("%d elements", b)}}
	}
	var all []Change
	i, j := 0, 0
	for i < len(before.Elements) || j < len(after.Elements) {
		switch {
		case j == len(after.Elements) || i < len(before.Elements) && before.Elements[i].Compare(after.Elements[j]) < 0:
			e := before.Elements[i]
			all = append(all, Change{Op: Removed, Kind: "element", Before: e.String(), Note: d.note(e, nil, false)})
			i++
		case i == len(before.Elements) || before.Elements[i].Compare(after.Elements[j]) > 0:
			e := after.Elements[j]
			all = append(all, Change{Op: Added, Kind: "element", After: e.String(), Note: d.note(nil, e, true)})
			j++
		default:
			if a, b := before.Elements[i], after.Elements[j]; a.String() != b.String() {
				all = append(all, Change{Op: Edited, Kind: "element", Before: a.String(), After: b.String(), Note: d.note(nil, b, true)})
			}
			i++
			j++
		}
	}
	return append(all, texts("element", before.Foreign, after.Foreign)...)
}

// texts compares two sorted lists of texts.
func texts(kind string, before, after []string) []Change {
	var all []Change
	for _, t := range before {
		if _, found := slices.BinarySearch(after, t); !found {
			all = append(all, Change{Op: Removed, Kind: kind, Before: t})
		}
	}
	for _, t := range after {
		if _, found := slices.BinarySearch(before, t); !found {
			all = append(all, Change{Op: Added, Kind: kind, After: t})
		}
	}
	return all
}

// foreign compares the objects of a table that are of other kinds.
func (d *differ) foreign(in string, before, after []string) {
	d.add(Object{Kind: "objects", In: in, Op: Edited, Changes: texts("object", before, after)})
}

// flows compares flows table by table. Priority and match identify a flow; a flow that
// does the same for the same packets at another priority has moved.
func (d *differ) flows() {
	byTable := func(flows []*flowtext.Flow) map[uint8][]*flowtext.Flow {
		m := map[uint8][]*flowtext.Flow{}
		for _, f := range flows {
			m[f.Table] = append(m[f.Table], f)
		}
		return m
	}
	before, after := byTable(d.Before.Flows), byTable(d.After.Flows)
	for n := range 256 {
		table := uint8(n)
		o := Object{Kind: "flows", Name: fmt.Sprint(table), Op: Edited}
		switch {
		case len(before[table]) == 0:
			o.Op = Added
		case len(after[table]) == 0:
			o.Op = Removed
		}
		if o.Changes = d.flowChanges(before[table], after[table]); len(o.Changes) > 0 {
			d.add(o)
		}
	}
}

// matched identifies a flow.
func matched(f *flowtext.Flow) string {
	if f.Foreign != "" {
		return fmt.Sprintf("%d %s", f.Priority, f.Foreign)
	}
	return fmt.Sprintf("%d %s", f.Priority, f.MatchText())
}

// done is the match and the actions of a flow, without its priority.
func done(f *flowtext.Flow) string { return f.Foreign + f.MatchText() + " actions=" + f.ActionsText() }

// flowText is the printed text of the flow, without its table.
func (d *differ) flowText(f *flowtext.Flow) string {
	text := fmt.Sprintf("priority=%d,%s", f.Priority, done(f))
	if f.MatchText() == "" && f.Foreign == "" {
		text = fmt.Sprintf("priority=%d actions=%s", f.Priority, f.ActionsText())
	}
	if d.options.Counters {
		text = fmt.Sprintf("n_packets=%d,n_bytes=%d,%s", f.Packets, f.Bytes, text)
	}
	return text
}

// editedNote names the rules that an edited flow has gained and lost. For a flow that
// belongs to no rule it names the subject.
func (d *differ) editedNote(before, after *flowtext.Flow) string {
	more, ok1 := parts(after, before)
	less, ok2 := parts(before, after)
	if !ok1 || !ok2 {
		return d.note(nil, after, true)
	}
	text := ""
	if len(more.Actions) > 0 {
		text = "more: " + d.NoteAfter(more)
	}
	if len(less.Actions) > 0 {
		text = joinNotes("less: "+d.NoteBefore(less), text)
	}
	return text
}

// parts returns the parts in rules that a flow has and the other has not, as a flow
// that matches nothing. It fails if a flow does anything else.
func parts(a, b *flowtext.Flow) (*flowtext.Flow, bool) {
	out := &flowtext.Flow{}
	for _, action := range a.Actions {
		if _, ok := action.(flowtext.Conjunction); !ok {
			return nil, false
		}
		if !slices.Contains(b.Actions, action) {
			out.Actions = append(out.Actions, action)
		}
	}
	return out, len(a.Actions) > 0
}

func (d *differ) flowChanges(before, after []*flowtext.Flow) []Change {
	var all []Change
	var gone []*flowtext.Flow
	var come []*flowtext.Flow
	for _, p := range pair(before, after, matched) {
		switch {
		case p.before == nil:
			come = append(come, p.after)
		case p.after == nil:
			gone = append(gone, p.before)
		default:
			if a, b := d.flowText(p.before), d.flowText(p.after); a != b {
				all = append(all, Change{Op: Edited, Kind: "flow", Before: a, After: b, Note: d.editedNote(p.before, p.after)})
			}
		}
	}
	left := map[string][]*flowtext.Flow{}
	for _, f := range gone {
		left[done(f)] = append(left[done(f)], f)
	}
	moved := map[*flowtext.Flow]bool{}
	for _, f := range come {
		c := Change{Op: Added, Kind: "flow", After: d.flowText(f), Note: d.note(nil, f, true)}
		if from := left[done(f)]; len(from) > 0 {
			c.Op, c.Before = Moved, fmt.Sprintf("priority=%d", from[0].Priority)
			moved[from[0]] = true
			left[done(f)] = from[1:]
		}
		all = append(all, c)
	}
	for _, f := range gone {
		if !moved[f] {
			all = append(all, Change{Op: Removed, Kind: "flow", Before: d.flowText(f), Note: d.note(f, nil, false)})
		}
	}
	return all
}
