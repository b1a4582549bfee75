package expression

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/tables"
)

// Digester computes digests of rules' bodies. It is used from one goroutine.
type Digester struct {
	// Seed makes digests of different Digesters comparable: with the same seed, equal
	// bodies have equal digests.
	Seed maphash.Seed
	// body and form are kept for their memory.
	body Message
	form []byte
}

// Digest returns the digest of a rule's body. b are its expressions (the content of
// NFTA_RULE_EXPRESSIONS), as Encode writes them or as the kernel returns them.
func (d *Digester) Digest(b []byte) uint64 {
	d.form = Canonical(d.form[:0], b)
	return maphash.Bytes(d.Seed, d.form)
}

// Predict returns the digest of the body that the kernel will return for a rule.
func (d *Digester) Predict(r tables.Rule) (uint64, error) {
	d.body.Reset()
	if err := Encode(&d.body, r); err != nil {
		return 0, err
	}
	return d.Digest(d.body.B), nil
}

// Canonical appends a rule's expressions in a form that is the same for our message and for the kernel's
// version of it:
//
//   - attributes come in the order of their numbers;
//   - flags in an attribute's type, which only one of the two sides sets, are gone;
//   - the values of counters are left out;
//   - a number that is zero is left out: the kernel adds such defaults (flags of
//     a lookup, the operation of a bitwise), and newer ones add more. The data that
//     a rule compares, masks or loads is always kept. So is the destination of a
//     lookup: its presence makes the difference.
//
// Every name and value comes with its length, so that different bodies have different forms.
func Canonical(out, b []byte) []byte {
	for _, element := range nfnetlink.Attributes(b) {
		var name, data []byte
		for kind, v := range nfnetlink.Attributes(element) {
			switch kind {
			case unix.NFTA_EXPR_NAME:
				name = v
			case unix.NFTA_EXPR_DATA:
				data = v
			}
		}
		out = appendSized(out, expressionMark, name)
		if string(name) != "counter\x00" {
			out = canonicalAttributes(out, data, schemaOf(name))
		}
	}
	return out
}

// expressionMark begins an expression; no attribute has this number.
const expressionMark = 1 << 15

// schema says how to read the attributes of an expression. Bit n stands for attribute n.
type schema struct {
	// nested are attributes that hold register data. kept are attributes that stay in the
	// form even if zero.
	nested, kept uint32
}

func schemaOf(name []byte) schema {
	switch string(name) {
	case "cmp\x00":
		return schema{nested: 1 << unix.NFTA_CMP_DATA}
	case "bitwise\x00":
		return schema{nested: 1<<unix.NFTA_BITWISE_MASK | 1<<unix.NFTA_BITWISE_XOR | 1<<bitwiseData}
	case "immediate\x00":
		return schema{nested: 1 << unix.NFTA_IMMEDIATE_DATA}
	case "lookup\x00":
		return schema{kept: 1 << unix.NFTA_LOOKUP_DREG}
	}
	return schema{}
}

// bitwiseData is NFTA_BITWISE_DATA.
const bitwiseData = 7

// orderedAttributes is above the numbers of attributes that are put in order;
// those of the expressions here are below.
const orderedAttributes = 16

// canonicalAttributes appends the attributes of an expression.
func canonicalAttributes(out, b []byte, s schema) []byte {
	var values [orderedAttributes][]byte
	var present uint32
	for kind, v := range nfnetlink.Attributes(b) {
		if kind < orderedAttributes {
			values[kind] = v
			present |= 1 << kind
		} else {
			out = appendSized(out, kind, v)
		}
	}
	for ; present != 0; present &= present - 1 {
		kind := bits.TrailingZeros32(present)
		v, bit := values[kind], uint32(1)<<kind
		switch {
		case s.nested&bit != 0:
			out = appendNested(out, uint16(kind), v, unix.NFTA_DATA_VERDICT)
		case s.kept&bit == 0 && len(v) == 4 && nfnetlink.Uint32(v) == 0:
		default:
			out = appendSized(out, uint16(kind), v)
		}
	}
	return out
}

// appendNested appends an attribute that contains attributes. The attribute with number
// deeper (zero: none) contains attributes itself: register data are bytes, or a verdict
// with its chain.
func appendNested(out []byte, kind uint16, b []byte, deeper uint16) []byte {
	out = appendSized(out, kind, nil)
	at := len(out)
	for kind, v := range nfnetlink.Attributes(b) {
		if kind == deeper && deeper != 0 {
			out = appendNested(out, kind, v, 0)
		} else {
			out = appendSized(out, kind, v)
		}
	}
	binary.NativeEndian.PutUint16(out[at-2:], uint16(len(out)-at))
	return out
}

func appendSized(out []byte, kind uint16, v []byte) []byte {
	out = binary.NativeEndian.AppendUint16(out, kind)
	out = binary.NativeEndian.AppendUint16(out, uint16(len(v)))
	return append(out, v...)
}
