package tables

import (
	"encoding/binary"
	"net/netip"

	"go4.org/netipx"

	"github.com/felixlike/felixlike/model"
)

// Part is the type of a part of a key or a value in a LargeSet.
type Part uint8

// The parts. AddressPart is of the family of the set. NumberPart is a number in the order of bytes of the host.
const (
	AddressPart Part = iota + 1
	ProtocolPart
	PortPart
	NumberPart
)

// Form says how a LargeSet finds a key.
type Form uint8

// The forms.
const (
	// Exact keys.
	Exact Form = iota
	// Intervals of a key of one part: the elements are their boundaries (Bounds).
	Intervals
	// Ranges of concatenations: each element is a first key and a last one, one behind the other.
	Ranges
	// Clients are exact keys that packets bring. They expire, and no one else writes them.
	Clients
)

// LargeSet is a set, or with Value or Verdicts a map, of tens of thousands of elements whose keys and values are known as bytes.
type LargeSet struct {
	Name     string
	Family   model.Family
	Form     Form
	Key      []Part
	Value    []Part
	Verdicts bool
}

// Verdicts are values of a map of verdicts: DropValue, or the name of a chain to go to behind GotoValue.
const (
	DropValue = "drop"
	GotoValue = "goto "
)

// AppendAddress appends an AddressPart.
func AppendAddress(b []byte, a netip.Addr) []byte { return append(b, a.AsSlice()...) }

// AppendProtocol appends a ProtocolPart. Parts take whole registers of 4 bytes.
func AppendProtocol(b []byte, p model.Protocol) []byte { return append(b, byte(p), 0, 0, 0) }

// AppendPort appends a PortPart.
func AppendPort(b []byte, port uint16) []byte { return append(b, byte(port>>8), byte(port), 0, 0) }

// AppendNumber appends a NumberPart.
func AppendNumber(b []byte, n uint32) []byte { return binary.NativeEndian.AppendUint32(b, n) }

// The last byte of a boundary. At one address, the end of an interval comes before the start of the next.
const (
	IntervalEnd   = 0
	IntervalStart = 1
)

// Bounds returns the boundaries of a prefix as keys of a LargeSet of Intervals. A prefix at the end of the address space has no end.
func Bounds(p netip.Prefix) []string {
	r := netipx.RangeOfPrefix(p)
	out := []string{string(append(AppendAddress(nil, r.From()), IntervalStart))}
	if next := r.To().Next(); next.IsValid() {
		out = append(out, string(append(AppendAddress(nil, next), IntervalEnd)))
	}
	return out
}
