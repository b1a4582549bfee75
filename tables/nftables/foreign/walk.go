package foreign

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

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
	// acts says that a rule may do something else with the packet on the way.
	acts
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
func (r *ruleset) walk(p facts, chain string, depth int) outcomes {
	if r.isOwn(chain) {
		return r.ownEnds
	}
	if depth > maxDepth {
		return accepts | drops
	}
	all := outcomes(0)
	for _, rule := range r.chain(chain) {
		end := r.rule(p, rule, depth)
		all |= end &^ goesOn
		if end&goesOn == 0 {
			return all
		}
	}
	return all | leaves
}

// rule returns the possible ends of a packet in a rule.
func (r *ruleset) rule(p facts, rule []expression, depth int) outcomes {
	m := &machine{facts: p, marked: r.marked}
	certain, all, counts := true, outcomes(0), ""
	act := func(what string) {
		all |= acts
		r.does = cmp.Or(r.does, what)
	}
	for _, e := range rule {
		if what, _ := e.acts(); strings.EqualFold(what, "synproxy") {
			act(what) // it changes sequence numbers of all later packets of a connection
		}
	}
	for _, e := range rule {
		matches, verdict := r.apply(m, e)
		if matches == no {
			return all | goesOn
		}
		certain = certain && matches == yes
		what, counter := e.acts()
		if what != "" {
			act(what)
		}
		counts = cmp.Or(counts, counter)
		if verdict == nil {
			continue
		}
		all |= r.end(p, *verdict, depth)
		if !certain {
			all |= goesOn
		}
		return all
	}
	if counts != "" {
		act(counts) // it is all that the rule does
	}
	return all | goesOn
}

// acts returns the name of the expression if it does something with a packet, in does, or only counts it, in counts.
func (e expression) acts() (does, counts string) {
	writes := func(kind uint16) string {
		if attribute(e.data, kind) != nil {
			return e.name + " set"
		}
		return ""
	}
	switch e.name {
	case "meta":
		return writes(unix.NFTA_META_SREG), ""
	case "ct":
		return writes(unix.NFTA_CT_SREG), ""
	case "payload":
		return writes(unix.NFTA_PAYLOAD_SREG), ""
	case "exthdr":
		return writes(unix.NFTA_EXTHDR_SREG), ""
	case "counter", "quota", "last":
		return "", e.name
	case "target":
		return nfnetlink.Text(attribute(e.data, unix.NFTA_TARGET_NAME)), ""
	case "immediate", "bitwise", "cmp", "range", "lookup", "byteorder", "numgen", "hash", "fib", "rt", "socket", "osf", "xfrm", "tunnel",
		"limit", "connlimit", "match":
		return "", ""
	}
	return e.name, ""
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
func (r *ruleset) end(p facts, v verdict, depth int) outcomes {
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
		m.set(number(field(unix.NFTA_META_DREG)), m.metadata(number(field(unix.NFTA_META_KEY))))
		return yes, nil
	case "ct":
		if field(unix.NFTA_CT_SREG) == nil {
			m.set(number(field(unix.NFTA_CT_DREG)), m.connection(number(field(unix.NFTA_CT_KEY))))
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
	case "fib":
		m.set(number(field(unix.NFTA_FIB_DREG)), m.route(number(field(unix.NFTA_FIB_RESULT)), number(field(unix.NFTA_FIB_FLAGS))))
		return yes, nil
	case "match":
		return matchOf(e.data).answer(m), nil
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
	from := at(number(attribute(data, unix.NFTA_BITWISE_SREG)))
	if len(mask) != size || len(xor) != size || size <= 0 || from+size > registers {
		m.set(to, unknown(min(max(size, 0), registers)))
		return yes
	}
	out := make([]octet, size)
	for i, o := range m.registers[from : from+size] {
		// Bits that the mask clears are known.
		out[i] = octet{known: o.known | ^mask[i]}
		out[i].value = (o.value&mask[i] ^ xor[i]) & out[i].known
	}
	m.set(to, out)
	return yes
}

// compare compares a register with a value.
func (m *machine) compare(data []byte) answer {
	with := attribute(attribute(data, unix.NFTA_CMP_DATA), unix.NFTA_DATA_VALUE)
	operator := number(attribute(data, unix.NFTA_CMP_OP))
	v, ok := m.get(number(attribute(data, unix.NFTA_CMP_SREG)), len(with))
	if !ok {
		return m.differs(number(attribute(data, unix.NFTA_CMP_SREG)), with, operator)
	}
	c := bytes.Compare(v, with)
	switch operator {
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

// differs compares a register that is known in part. A bit that differs decides about equality.
func (m *machine) differs(register uint32, with []byte, operator uint32) answer {
	from := at(register)
	if from+len(with) > registers {
		return maybe
	}
	for i, o := range m.registers[from : from+len(with)] {
		if (o.value^with[i])&o.known == 0 {
			continue
		}
		switch operator {
		case unix.NFT_CMP_EQ:
			return no
		case unix.NFT_CMP_NEQ:
			return yes
		}
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

// nativeShort reads two bytes in the machine's order.
func nativeShort(b []byte) uint16 { return binary.NativeEndian.Uint16(b) }

// native returns a number of four bytes in the machine's order.
func native(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
