package compare

import (
	"bytes"
	"cmp"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
)

// Text returns the unified diff of two canonical states in the tools' own words,
// with names behind them. It is empty if there is no difference.
func Text(s Sides, o Options, before, after string) ([]byte, error) {
	// The same names on both sides: else lines would differ by them alone.
	note := func(object any) string { return cmp.Or(s.NoteAfter(object), s.NoteBefore(object)) }
	old, err := render(s.Before, o, note)
	if err != nil {
		return nil, err
	}
	now, err := render(s.After, o, note)
	return diff.Diff(before, old, after, now), err
}

func render(s *dump.State, o Options, note func(any) string) ([]byte, error) {
	var b bytes.Buffer
	err := dump.Write(&b, s, dump.TextOptions{Counters: o.Counters, Elements: o.Elements, Note: note})
	return b.Bytes(), err
}
