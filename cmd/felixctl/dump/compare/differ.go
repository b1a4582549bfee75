package compare

import (
	"slices"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
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

func joinNotes(a, b string) string {
	if b == "" {
		return a
	}
	return a + "; " + b
}

// Sides are the two states to compare, with functions that name their objects.
type Sides struct {
	Before, After         *dump.State
	NoteBefore, NoteAfter func(object any) string
}
