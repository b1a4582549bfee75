package flowtext

import (
	"cmp"
	"slices"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// Flow is one flow of a switch. It is either typed (Match and Actions) or
// Foreign.
type Flow struct {
	Table    uint8
	Priority uint16
	Cookie   uint64
	// IdleTimeout and HardTimeout are in seconds, zero if the flow stays.
	IdleTimeout, HardTimeout uint16
	// Match has a term for each field, in the order of the fields.
	Match []Term
	// Actions are in order; a flow without drops.
	Actions []Action
	// Foreign is the text of match and actions of a flow that has a field or an
	// action which is not ours; Match and Actions are then empty.
	Foreign        string
	Packets, Bytes uint64
	// Line is the flow's line in the listing, from 1.
	Line int
}

// Owner is the upper 16 bits of the cookie: the program that installed the flow.
func (f *Flow) Owner() uint16 { return uint16(f.Cookie >> 48) }

// Term returns the flow's match on a field.
func (f *Flow) Term(field openflow.Field) (Term, bool) {
	i, found := slices.BinarySearchFunc(f.Match, field, func(t Term, f openflow.Field) int { return cmp.Compare(t.Field, f) })
	if !found {
		return Term{}, false
	}
	return f.Match[i], true
}

// Drops reports whether the flow passes the packet to no port and no table: at most it
// reports the packet.
func (f *Flow) Drops() bool {
	for _, a := range f.Actions {
		switch a.(type) {
		case Meter, Controller, Note:
		default:
			return false
		}
	}
	return f.Foreign == ""
}

// Normalise replaces a resubmit that is the last action by goto_table, which does the same.
// Other notations of equal flows are equal already when they are parsed.
func (f *Flow) Normalise() {
	if last := len(f.Actions) - 1; last >= 0 {
		if a, ok := f.Actions[last].(Resubmit); ok {
			f.Actions[last] = GotoTable(a)
		}
	}
}

// Covers reports whether every packet that o matches is matched by f too. Both are typed.
func (f *Flow) Covers(o *Flow) bool {
	for _, mine := range f.Match {
		theirs, found := o.Term(mine.Field)
		if !found || !mine.Mask.AndNot(theirs.Mask).IsZero() || !mine.Matches(theirs.Value) {
			return false
		}
	}
	return true
}
