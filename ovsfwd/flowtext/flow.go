package flowtext

import (
	"cmp"
	"net/netip"
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

// Word is the value of a field: up to 128 bits, of which Lo has the lower 64. An
// IPv4 address, a port or a register is in the lower bits of Lo.
type Word struct{ Hi, Lo uint64 }

// And returns the bits that both have.
func (w Word) And(o Word) Word { return Word{w.Hi & o.Hi, w.Lo & o.Lo} }

// Or returns the bits that either has.
func (w Word) Or(o Word) Word { return Word{w.Hi | o.Hi, w.Lo | o.Lo} }

// AndNot returns the bits of w that o has not.
func (w Word) AndNot(o Word) Word { return Word{w.Hi &^ o.Hi, w.Lo &^ o.Lo} }

// IsZero reports whether no bit is set.
func (w Word) IsZero() bool { return w == Word{} }

// Compare orders words as numbers.
func (w Word) Compare(o Word) int { return cmp.Or(cmp.Compare(w.Hi, o.Hi), cmp.Compare(w.Lo, o.Lo)) }

// ShiftLeft returns the word shifted left by n bits.
func (w Word) ShiftLeft(n int) Word {
	if n >= 64 {
		return Word{Hi: w.Lo << (n - 64)}
	}
	return Word{Hi: w.Hi<<n | w.Lo>>(64-n), Lo: w.Lo << n}
}

// ShiftRight returns the word shifted right by n bits.
func (w Word) ShiftRight(n int) Word {
	if n >= 64 {
		return Word{Lo: w.Hi >> (n - 64)}
	}
	return Word{Hi: w.Hi >> n, Lo: w.Lo>>n | w.Hi<<(64-n)}
}

// Addr returns the word as the address of a field that has one.
func (w Word) Addr(f openflow.Field) netip.Addr {
	a, _ := netip.AddrFromSlice(bytesOf(f, w))
	return a
}

// Ones returns the word with the lowest bits set.
func Ones(bits int) Word {
	switch {
	case bits <= 0:
		return Word{}
	case bits >= 128:
		return Word{^uint64(0), ^uint64(0)}
	case bits > 64:
		return Word{1<<(bits-64) - 1, ^uint64(0)}
	case bits == 64:
		return Word{Lo: ^uint64(0)}
	}
	return Word{Lo: 1<<bits - 1}
}

// Term says that a field has Value in the bits of Mask. Value has no other bits.
type Term struct {
	Field       openflow.Field
	Value, Mask Word
}

// Matches reports whether a packet with that value in the field is meant.
func (t Term) Matches(value Word) bool { return value.And(t.Mask) == t.Value }

// Exact reports whether all bits of the field are compared.
func (t Term) Exact() bool { return t.Mask == Ones(t.Field.Bits()) }

// Addr returns the value of a field that has an address.
func (t Term) Addr() netip.Addr { return t.Value.Addr(t.Field) }

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
