package compare

import (
	"bytes"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/felixlike/felixlike/dump"
	"github.com/felixlike/felixlike/model"
)

// Text returns the unified diff of two canonical states in the tools' own words,
// with names behind them. It is empty if there is no difference.
func Text(s Sides, o Options, before, after string) ([]byte, error) {
	old, err := render(s.Before, o, s.NoteBefore)
	if err != nil {
		return nil, err
	}
	now, err := render(s.After, o, s.NoteAfter)
	if err != nil {
		return nil, err
	}
	// The names may differ where what they stand behind does not.
	bare := o
	if same, err := equal(s, bare); err != nil || same {
		return nil, err
	}
	return diff.Diff(before, old, after, now), nil
}

// equal reports whether both sides have the same text without names.
func equal(s Sides, o Options) (bool, error) {
	old, err := render(s.Before, o, nil)
	if err != nil {
		return false, err
	}
	now, err := render(s.After, o, nil)
	return bytes.Equal(old, now), err
}

func render(s *dump.State, o Options, note func(any) string) ([]byte, error) {
	var b bytes.Buffer
	text := dump.TextOptions{Counters: o.Counters, Elements: o.Elements, Note: note}
	if err := dump.WriteNFT(&b, s.Tables, text); err != nil {
		return nil, err
	}
	for _, f := range model.Families() {
		if err := dump.WriteIPTables(&b, s.Tables, f, text); err != nil {
			return nil, err
		}
	}
	if err := dump.WriteIPSets(&b, s.IPSets, text); err != nil {
		return nil, err
	}
	if err := dump.WriteFlows(&b, s.Flows, text); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
