package openflow

import (
	"fmt"
	"slices"
)

// Fields lists all fields, in the order of the constants.
func Fields() []Field {
	all := make([]Field, 0, lastField)
	for f := Reg0; f <= lastField; f++ {
		all = append(all, f)
	}
	return all
}

// String returns the field's name in set_field, which no other field has.
func (f Field) String() string {
	if s := f.spec(); s.set != "" {
		return s.set
	}
	return f.spec().match
}

// Names lists all that ovs-ofctl calls the field: in matches, in set_field, and
// in move, load and learn. The ports of all protocols have one name in matches.
func (f Field) Names() []string {
	s := f.spec()
	names := []string{s.match, s.set, s.oxm, f.LongName()}
	slices.Sort(names)
	return slices.Compact(names)
}

// Bits is the width of the field.
func (f Field) Bits() int { return f.spec().width * 8 }

// BitRange names bits of the field, in move, load and learn.
func (f Field) BitRange(first, count int) string {
	switch {
	case first == 0 && count == f.Bits():
		return f.LongName() + "[]"
	case count == 1:
		return fmt.Sprintf("%s[%d]", f.LongName(), first)
	}
	return fmt.Sprintf("%s[%d..%d]", f.LongName(), first, first+count-1)
}

// Format writes a value as ovs-ofctl does, with its mask behind a slash unless
// that is nil. Both have the field's width.
func (f Field) Format(value, mask []byte) string { return newTerm(f, value, mask).valueString() }

// Masked matches the bits of any field that mask selects; all of them if it is
// nil. Both have the field's width.
func (m Match) Masked(f Field, value, mask []byte) Match { return m.with(f, value, mask) }
