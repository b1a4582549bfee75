package flowtext

import (
	"cmp"
	"encoding/binary"
	"net/netip"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

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

// bytesOf returns the word as the bytes of a field.
func bytesOf(f openflow.Field, w Word) []byte {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], w.Hi)
	binary.BigEndian.PutUint64(b[8:], w.Lo)
	return append([]byte(nil), b[16-f.Bits()/8:]...)
}

// WordOf returns the value of at most 16 bytes, as they are in a packet.
func WordOf(b []byte) Word {
	var all [16]byte
	copy(all[16-len(b):], b)
	return Word{binary.BigEndian.Uint64(all[:]), binary.BigEndian.Uint64(all[8:])}
}
