package foreign

import (
	"bytes"
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
)

// outcomes is a set of possible ends of a chain.
type outcomes uint8

const (
	accepts outcomes = 1 << iota
	drops
	// leaves goes back to the calling chain, or to the policy.
	leaves
	// goesOn goes on with the next rule.
	goesOn
)

// Verdicts of linux/netfilter.h and linux/netfilter/nf_tables.h.
const (
	verdictDrop     = 0
	verdictAccept   = 1
	verdictReturn   = ^uint32(4) // -5
	verdictGoto     = ^uint32(3)
	verdictJump     = ^uint32(2)
	verdictContinue = ^uint32(0)
)

// maxDepth is the kernel's NFT_JUMP_STACK_SIZE.
const maxDepth = 16

// walk returns the possible ends of a packet in a chain.
func (r *ruleset) walk(p Packet, chain string, depth int) outcomes {
	if depth > maxDepth {
		return accepts | drops
	}
	all := outcomes(0)
	for _, rule := range r.rules[chain] {
		end := r.rule(p, rule, depth)
		all |= end &^ goesOn
		if end&goesOn == 0 {
			return all
		}
	}
	return all | leaves
}

// rule returns the possible ends of a packet in a rule.
func (r *ruleset) rule(p Packet, rule []expression, depth int) outcomes {
	m := &machine{packet: p, marked: r.marked}
	certain := true
	for _, e := range rule {
		matches, verdict := r.apply(m, e)
		if matches == no {
			return goesOn
		}
		certain = certain && matches == yes
		if verdict == nil {
			continue
		}
		end := r.end(p, *verdict, depth)
		if !certain {
			end |= goesOn
		}
		return end
	}
	return goesOn
}

// verdict is a decision of a rule. A verdict that is not known may be any.
type verdict struct {
	code    uint32
	chain   string
	unknown bool
}

func parseVerdict(b []byte) verdict {
	return verdict{code: number(attribute(b, unix.NFTA_VERDICT_CODE)), chain: nfnetlink.Text(attribute(b, unix.NFTA_VERDICT_CHAIN))}
}

// end returns the possible ends of a packet that has a verdict.
func (r *ruleset) end(p Packet, v verdict, depth int) outcomes {
	switch {
	case v.unknown:
		return accepts | drops | leaves | goesOn
	case v.code == verdictDrop:
		return drops
	case v.code == verdictReturn:
		return leaves
	case v.code == verdictContinue:
		return goesOn
	case v.code == verdictJump, v.code == verdictGoto:
		end := r.walk(p, v.chain, depth+1)
		if v.code == verdictJump && end&leaves != 0 {
			end = end&^leaves | goesOn
		}
		return end
	}
	return accepts // also to a program in user space
}

// answer says whether a condition is true.
type answer uint8

const (
	no answer = iota
	maybe
	yes
)

func answerOf(holds bool) answer {
	if holds {
		return yes
	}
	return no
}

// apply carries out an expression. A verdict ends the rule.
func (r *ruleset) apply(m *machine, e expression) (answer, *verdict) {
	field := func(kind uint16) []byte { return attribute(e.data, kind) }
	switch e.name {
	case "counter", "log", "last":
		return yes, nil
	case "queue":
		return yes, &verdict{code: verdictAccept}
	case "reject":
		return yes, &verdict{code: verdictDrop}
	case "immediate":
		if to := number(field(unix.NFTA_IMMEDIATE_DREG)); to != unix.NFT_REG_VERDICT {
			m.set(to, known(attribute(field(unix.NFTA_IMMEDIATE_DATA), unix.NFTA_DATA_VALUE)))
			return yes, nil
		}
		v := parseVerdict(attribute(field(unix.NFTA_IMMEDIATE_DATA), unix.NFTA_DATA_VERDICT))
		return yes, &v
	case "meta":
		if field(unix.NFTA_META_SREG) != nil {
			r.marked = r.marked || number(field(unix.NFTA_META_KEY)) == unix.NFT_META_MARK
			return yes, nil
		}
		m.set(number(field(unix.NFTA_META_DREG)), m.meta(number(field(unix.NFTA_META_KEY))))
		return yes, nil
	case "ct":
		if field(unix.NFTA_CT_SREG) == nil {
			m.set(number(field(unix.NFTA_CT_DREG)), connection(number(field(unix.NFTA_CT_KEY))))
		}
		return yes, nil
	case "payload":
		if to := field(unix.NFTA_PAYLOAD_DREG); to != nil {
			m.set(number(to), m.payload(number(field(unix.NFTA_PAYLOAD_BASE)), number(field(unix.NFTA_PAYLOAD_OFFSET)), number(field(unix.NFTA_PAYLOAD_LEN))))
		}
		return yes, nil
	case "bitwise":
		return m.bitwise(e.data), nil
	case "cmp":
		return m.compare(e.data), nil
	case "range":
		return m.between(e.data), nil
	case "lookup":
		return r.lookup(m, e.data)
	}
	return maybe, nil
}

// lookup looks a register up in a set or a verdict map.
func (r *ruleset) lookup(m *machine, data []byte) (answer, *verdict) {
	name, from := nfnetlink.Text(attribute(data, unix.NFTA_LOOKUP_SET)), number(attribute(data, unix.NFTA_LOOKUP_SREG))
	negated := number(attribute(data, unix.NFTA_LOOKUP_FLAGS))&unix.NFT_LOOKUP_F_INV != 0
	to := attribute(data, unix.NFTA_LOOKUP_DREG)
	found, e := m.find(r.set(name), from)
	switch {
	case to == nil && negated:
		return yes - found, nil
	case to == nil:
		return found, nil
	case found == no:
		return no, nil
	case number(to) != unix.NFT_REG_VERDICT:
		m.set(number(to), unknown(registerSize))
		return found, nil
	case found == maybe:
		return maybe, &verdict{unknown: true}
	}
	v := parseVerdict(e.verdict)
	return yes, &v
}

// find looks for the element with the value of a register.
func (m *machine) find(all []element, from uint32) (answer, element) {
	if len(all) == 0 {
		return no, element{}
	}
	size := len(all[0].key)
	value, ok := m.get(from, size)
	if !ok || slices.ContainsFunc(all, func(e element) bool { return e.keyEnd != nil || len(e.key) != size }) {
		return maybe, element{}
	}
	interval := slices.ContainsFunc(all, func(e element) bool { return e.end })
	var best element
	for _, e := range all {
		switch {
		case bytes.Equal(e.key, value) && !e.end:
			return yes, e
		case interval && bytes.Compare(e.key, value) <= 0 && (best.key == nil || bytes.Compare(e.key, best.key) > 0):
			best = e
		}
	}
	return answerOf(best.key != nil && !best.end), best
}

// bitwise carries out (register & mask) ^ xor.
func (m *machine) bitwise(data []byte) answer {
	value := func(kind uint16) []byte { return attribute(attribute(data, kind), unix.NFTA_DATA_VALUE) }
	size, mask, xor := int(number(attribute(data, unix.NFTA_BITWISE_LEN))), value(unix.NFTA_BITWISE_MASK), value(unix.NFTA_BITWISE_XOR)
	to := number(attribute(data, unix.NFTA_BITWISE_DREG))
	v, ok := m.get(number(attribute(data, unix.NFTA_BITWISE_SREG)), size)
	if !ok || len(mask) != size || len(xor) != size {
		m.set(to, unknown(max(size, 0)))
		return yes
	}
	out := make([]byte, size)
	for i := range out {
		out[i] = v[i]&mask[i] ^ xor[i]
	}
	m.set(to, known(out))
	return yes
}

// compare compares a register with a value.
func (m *machine) compare(data []byte) answer {
	with := attribute(attribute(data, unix.NFTA_CMP_DATA), unix.NFTA_DATA_VALUE)
	v, ok := m.get(number(attribute(data, unix.NFTA_CMP_SREG)), len(with))
	if !ok {
		return maybe
	}
	c := bytes.Compare(v, with)
	switch number(attribute(data, unix.NFTA_CMP_OP)) {
	case unix.NFT_CMP_EQ:
		return answerOf(c == 0)
	case unix.NFT_CMP_NEQ:
		return answerOf(c != 0)
	case unix.NFT_CMP_LT:
		return answerOf(c < 0)
	case unix.NFT_CMP_LTE:
		return answerOf(c <= 0)
	case unix.NFT_CMP_GT:
		return answerOf(c > 0)
	case unix.NFT_CMP_GTE:
		return answerOf(c >= 0)
	}
	return maybe
}

// between compares a register with a range.
func (m *machine) between(data []byte) answer {
	value := func(kind uint16) []byte { return attribute(attribute(data, kind), unix.NFTA_DATA_VALUE) }
	first, last := value(unix.NFTA_RANGE_FROM_DATA), value(unix.NFTA_RANGE_TO_DATA)
	v, ok := m.get(number(attribute(data, unix.NFTA_RANGE_SREG)), len(first))
	if !ok || len(first) != len(last) {
		return maybe
	}
	within := bytes.Compare(first, v) <= 0 && bytes.Compare(v, last) <= 0
	return answerOf(within == (number(attribute(data, unix.NFTA_RANGE_OP)) == unix.NFT_RANGE_EQ))
}

// native returns a number of four bytes in the machine's order.
func native(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
