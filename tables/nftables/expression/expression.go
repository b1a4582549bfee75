package expression

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/tables"
)

// Each method here writes one expression of the kernel.

// expression opens an expression and its attributes; both results go to
// endExpression.
func (m *Message) expression(name string) (element, data int) {
	element = m.Nest(unix.NFTA_LIST_ELEM)
	m.Text(unix.NFTA_EXPR_NAME, name)
	return element, m.Nest(unix.NFTA_EXPR_DATA)
}

func (m *Message) endExpression(element, data int) {
	m.Close(data)
	m.Close(element)
}

// Value writes the data of a register.
func (m *Message) Value(kind uint16, v []byte) {
	at := m.Nest(kind)
	m.Data(unix.NFTA_DATA_VALUE, v)
	m.Close(at)
}

// meta loads metadata of the packet.
func (m *Message) meta(key, register uint32) {
	element, data := m.expression("meta")
	m.Uint32(unix.NFTA_META_DREG, register)
	m.Uint32(unix.NFTA_META_KEY, key)
	m.endExpression(element, data)
}

// setMeta sets it from a register.
func (m *Message) setMeta(key, register uint32) {
	element, data := m.expression("meta")
	m.Uint32(unix.NFTA_META_KEY, key)
	m.Uint32(unix.NFTA_META_SREG, register)
	m.endExpression(element, data)
}

// conn loads conntrack's data of the packet's connection into register 1.
func (m *Message) conn(key uint32) {
	element, data := m.expression("ct")
	m.Uint32(unix.NFTA_CT_DREG, reg1)
	m.Uint32(unix.NFTA_CT_KEY, key)
	m.endExpression(element, data)
}

// setConn sets it from register 1.
func (m *Message) setConn(key uint32) {
	element, data := m.expression("ct")
	m.Uint32(unix.NFTA_CT_KEY, key)
	m.Uint32(unix.NFTA_CT_SREG, reg1)
	m.endExpression(element, data)
}

// payload loads bytes of the packet.
func (m *Message) payload(header, offset, size, register uint32) {
	element, data := m.expression("payload")
	m.Uint32(unix.NFTA_PAYLOAD_DREG, register)
	m.Uint32(unix.NFTA_PAYLOAD_BASE, header)
	m.Uint32(unix.NFTA_PAYLOAD_OFFSET, offset)
	m.Uint32(unix.NFTA_PAYLOAD_LEN, size)
	m.endExpression(element, data)
}

// compare goes on to the next expression if the comparison of register 1 with the value
// holds.
func (m *Message) compare(operator uint32, v ...byte) {
	element, data := m.expression("cmp")
	m.Uint32(unix.NFTA_CMP_SREG, reg1)
	m.Uint32(unix.NFTA_CMP_OP, operator)
	m.Value(unix.NFTA_CMP_DATA, v)
	m.endExpression(element, data)
}

// compareNumber compares register 1 to a number in host order.
func (m *Message) compareNumber(negated bool, v uint32) {
	b := native(v)
	m.compare(equality(negated), b[:]...)
}

// mask replaces register 1 by (register 1 & and) ^ xor.
func (m *Message) mask(and, xor []byte) {
	element, data := m.expression("bitwise")
	m.Uint32(unix.NFTA_BITWISE_SREG, reg1)
	m.Uint32(unix.NFTA_BITWISE_DREG, reg1)
	m.Uint32(unix.NFTA_BITWISE_LEN, uint32(len(and)))
	m.Value(unix.NFTA_BITWISE_MASK, and)
	m.Value(unix.NFTA_BITWISE_XOR, xor)
	m.endExpression(element, data)
}

// maskNumber does so with numbers in host order.
func (m *Message) maskNumber(and, xor uint32) {
	a, x := native(and), native(xor)
	m.mask(a[:], x[:])
}

// lookup goes on if the set has register 1; of a verdict map, with the
// verdict found.
func (m *Message) lookup(set string, verdict bool) {
	if verdict {
		m.lookupFrom(reg1, set, regVerdict)
		return
	}
	m.lookupFrom(reg1, set)
}

// lookupFrom goes on if the set or map has the register. The value that a map has for it goes to another register.
func (m *Message) lookupFrom(register uint32, set string, to ...uint32) {
	element, data := m.expression("lookup")
	m.Text(unix.NFTA_LOOKUP_SET, set)
	m.Uint32(unix.NFTA_LOOKUP_SREG, register)
	for _, value := range to {
		m.Uint32(unix.NFTA_LOOKUP_DREG, value)
	}
	m.endExpression(element, data)
}

func (m *Message) counter() {
	element, data := m.expression("counter")
	m.endExpression(element, data)
}

// limit matches at most perSecond packets a second, with a burst of perSecond.
func (m *Message) limit(perSecond uint32) {
	element, data := m.expression("limit")
	m.Uint64(unix.NFTA_LIMIT_RATE, uint64(perSecond))
	m.Uint64(unix.NFTA_LIMIT_UNIT, 1) // second
	m.Uint32(unix.NFTA_LIMIT_BURST, perSecond)
	m.Uint32(unix.NFTA_LIMIT_TYPE, unix.NFT_LIMIT_PKTS)
	m.Uint32(unix.NFTA_LIMIT_FLAGS, 0)
	m.endExpression(element, data)
}

// log sends the packet to the listener of the NFLOG group, at once.
func (m *Message) log(r tables.Report) {
	element, data := m.expression("log")
	m.Uint16(unix.NFTA_LOG_GROUP, r.Group)
	m.Text(unix.NFTA_LOG_PREFIX, r.Prefix)
	m.Uint32(unix.NFTA_LOG_SNAPLEN, r.Length)
	m.endExpression(element, data)
}

// reject drops the packet and answers its sender.
func (m *Message) reject(with tables.Answer) error {
	element, data := m.expression("reject")
	defer m.endExpression(element, data)
	switch with {
	case tables.TCPReset:
		m.Uint32(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_TCP_RST)
	case tables.AdminProhibited:
		m.Uint32(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_ICMPX_UNREACH)
		m.Uint8(unix.NFTA_REJECT_ICMP_CODE, unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED)
	case tables.PortUnreachable:
		m.Uint32(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_ICMPX_UNREACH)
		m.Uint8(unix.NFTA_REJECT_ICMP_CODE, unix.NFT_REJECT_ICMPX_PORT_UNREACH)
	default:
		return fmt.Errorf("unknown answer %s", with)
	}
	return nil
}

func (m *Message) noTrack() {
	element, data := m.expression("notrack")
	m.endExpression(element, data)
}

func (m *Message) masquerade() {
	element, data := m.expression("masq")
	m.endExpression(element, data)
}

// immediate loads data into register 1.
func (m *Message) immediate(v []byte) { m.immediateTo(reg1, v) }

// immediateTo loads data into a register.
func (m *Message) immediateTo(register uint32, v []byte) {
	element, data := m.expression("immediate")
	m.Uint32(unix.NFTA_IMMEDIATE_DREG, register)
	m.Value(unix.NFTA_IMMEDIATE_DATA, v)
	m.endExpression(element, data)
}

// immediateNumber loads a number in host order into register 1.
func (m *Message) immediateNumber(v uint32) {
	b := native(v)
	m.immediate(b[:])
}

// verdict ends the rule with an action that is a verdict.
func (m *Message) verdict(a tables.Action) error {
	element, data := m.expression("immediate")
	m.Uint32(unix.NFTA_IMMEDIATE_DREG, regVerdict)
	err := m.VerdictData(unix.NFTA_IMMEDIATE_DATA, a)
	m.endExpression(element, data)
	return err
}

// VerdictData writes a verdict as the data of a rule or a map's element.
func (m *Message) VerdictData(kind uint16, a tables.Action) error {
	code, err := verdictCode(a)
	if err != nil {
		return err
	}
	at := m.Nest(kind)
	verdict := m.Nest(unix.NFTA_DATA_VERDICT)
	m.Uint32(unix.NFTA_VERDICT_CODE, uint32(code))
	if target := tables.Target(a); target != "" {
		m.Text(unix.NFTA_VERDICT_CHAIN, target)
	}
	m.Close(verdict)
	m.Close(at)
	return nil
}
