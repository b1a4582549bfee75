package nftables

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/tables"
)

// digester computes digests of rules' bodies. Those with the same seed agree.
type digester struct {
	seed maphash.Seed
	// body and form are kept for their memory.
	body message
	form []byte
}

// digest returns the digest of a rule's body, of which b are the expressions as
// they are in netlink messages, ours or the kernel's.
func (d *digester) digest(b []byte) uint64 {
	d.form = canonical(d.form[:0], b)
	return maphash.Bytes(d.seed, d.form)
}

// predict returns the digest of the body that the kernel will return of a rule.
func (d *digester) predict(r tables.Rule) (uint64, error) {
	d.body.Reset()
	if err := encode(&d.body, r); err != nil {
		return 0, err
	}
	return d.digest(d.body.B), nil
}

// take makes the chain that was found what the kernel holds of c. What its rules
// claim to be by their comments is looked into when it matters: see checked.
func (c *chain) take(found *kernelChain) {
	if found != nil {
		found.claims = true
		found.echoed = c.have.known()
	}
	c.have = found
}

// known returns the rules that the kernel has echoed, as far as is known.
func (k *kernelChain) known() []kernelRule {
	switch {
	case k == nil:
		return nil
	case k.claims:
		return k.echoed
	}
	return k.rules
}

// checked returns the rules that the kernel holds of the chain. One that was read
// and carries the hash of a rule to be, but not its body, is none of ours: somebody
// has swapped it, or an earlier version of this program has encoded it in
// another way. It is without its hash here, so it will be replaced.
//
// What body to expect is predicted from the rule to be. If a kernel returns rules
// in a form that the prediction does not foresee, the rules are written anew once,
// on the first full read of a process; from then on the body that the kernel has
// echoed for the rule is good, too, because it was seen in the very transaction
// that wrote it.
func (d *digester) checked(c *chain) []kernelRule {
	if c.have == nil || !c.have.claims || c.want == nil {
		return c.have.all()
	}
	wanted, hashes := c.goal()
	indexOf := indices(hashes)
	out := c.have.rules
	for i, r := range c.have.rules {
		index, claims := indexOf(i, r.hash)
		if !claims || i < len(c.have.echoed) && c.have.echoed[i] == r {
			continue
		}
		predicted, err := d.predict(wanted[index])
		if err == nil && r.digest == predicted || slices.ContainsFunc(c.have.echoed, r.same) {
			continue
		}
		if &out[0] == &c.have.rules[0] {
			out = slices.Clone(out)
		}
		out[i].hash = ""
	}
	return out
}

// all returns the rules of a chain, if there is one.
func (k *kernelChain) all() []kernelRule {
	if k == nil {
		return nil
	}
	return k.rules
}

// same reports whether both are one rule written twice.
func (r kernelRule) same(o kernelRule) bool { return o.hash == r.hash && o.digest == r.digest }

// indices returns a function that finds a rule by its hash, first where the kernel
// has it.
func indices(hashes []string) func(i int, hash string) (int, bool) {
	var all map[string]int
	return func(i int, hash string) (int, bool) {
		if i < len(hashes) && hashes[i] == hash {
			return i, true
		}
		if hash == "" {
			return 0, false
		}
		if all == nil {
			all = make(map[string]int, len(hashes))
			for n, h := range hashes {
				all[h] = n
			}
		}
		n, ok := all[hash]
		return n, ok
	}
}

// canonical appends a rule's expressions in a form that is the same for what we
// send and for what the kernel returns of it:
//
//   - attributes come in the order of their numbers;
//   - flags in an attribute's type, which only one of the two sides sets, are gone;
//   - what a counter has counted is left out;
//   - a number that is zero is left out: the kernel adds such defaults (flags of
//     a lookup, the operation of a bitwise), and newer ones add more. The data that
//     a rule compares, masks or loads is kept whatever it is, and so is the
//     destination of a lookup, which being there makes the difference.
//
// Every name and value comes with its length, so that different bodies have
// different forms.
func canonical(out, b []byte) []byte {
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

// schema says how to read the attributes of an expression: a bit is an
// attribute's number.
type schema struct {
	// nested hold data of a register, kept are left as they are even if zero.
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
		case s.kept&bit == 0 && len(v) == 4 && number(v) == 0:
		default:
			out = appendSized(out, uint16(kind), v)
		}
	}
	return out
}

// appendNested appends an attribute that holds others, of which the one with the
// number deeper (zero for none) does so, too: data of a register are bytes, or a
// verdict with the chain that it leads to.
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
