package nfnetlink

import (
	"encoding/binary"
	"math"

	"golang.org/x/sys/unix"
)

// Messages writes netlink messages one behind the other into one buffer.
type Messages struct {
	b []byte
	// at is where the open message begins, count how many were begun.
	at, count int
}

// Reset empties the buffer and keeps its memory.
func (m *Messages) Reset() { m.b, m.at, m.count = m.b[:0], 0, 0 }

// Len returns the length of what was written, Count the number of messages.
func (m *Messages) Len() int { return len(m.b) }

// Count returns the number of messages.
func (m *Messages) Count() int { return m.count }

// Begin opens a message of a subsystem. Its sequence number is set when it is
// sent.
func (m *Messages) Begin(subsystem, kind uint8, flags uint16, family byte) {
	m.at = len(m.b)
	m.count++
	m.b = append(m.b, 0, 0, 0, 0) // the length
	m.b = binary.NativeEndian.AppendUint16(m.b, uint16(subsystem)<<8|uint16(kind))
	m.b = binary.NativeEndian.AppendUint16(m.b, unix.NLM_F_REQUEST|flags)
	m.b = append(m.b, 0, 0, 0, 0, 0, 0, 0, 0) // sequence; port, which the kernel knows
	// struct nfgenmsg: family, version, resource.
	m.b = append(m.b, family, unix.NFNETLINK_V0, 0, 0)
}

// End closes the open message.
func (m *Messages) End() { binary.NativeEndian.PutUint32(m.b[m.at:], uint32(len(m.b)-m.at)) }

// Uint8 writes an attribute of one byte.
func (m *Messages) Uint8(kind uint16, v uint8) {
	m.header(kind, 1)
	m.b = append(m.b, v, 0, 0, 0)
}

// Uint16 writes an attribute of 16 bits in network order.
func (m *Messages) Uint16(kind uint16, v uint16) {
	m.header(kind|unix.NLA_F_NET_BYTEORDER, 2)
	m.b = binary.BigEndian.AppendUint16(m.b, v)
	m.b = append(m.b, 0, 0)
}

// Uint32 writes an attribute of 32 bits in network order.
func (m *Messages) Uint32(kind uint16, v uint32) {
	m.header(kind|unix.NLA_F_NET_BYTEORDER, 4)
	m.b = binary.BigEndian.AppendUint32(m.b, v)
}

// Bytes writes an attribute of bytes in network order.
func (m *Messages) Bytes(kind uint16, v []byte) {
	m.header(kind|unix.NLA_F_NET_BYTEORDER, len(v))
	m.b = append(m.b, v...)
	m.pad()
}

// Text writes a string with a zero behind it.
func (m *Messages) Text(kind uint16, s string) {
	m.header(kind, len(s)+1)
	m.b = append(m.b, s...)
	m.b = append(m.b, 0)
	m.pad()
}

// Nest opens an attribute that holds others, and returns what Close takes. All
// in it must fit into MaxNest bytes.
func (m *Messages) Nest(kind uint16) int {
	at := len(m.b)
	m.header(kind|unix.NLA_F_NESTED, 0)
	return at
}

// Close closes a nest.
func (m *Messages) Close(at int) { binary.NativeEndian.PutUint16(m.b[at:], uint16(len(m.b)-at)) }

// MaxNest is what fits into one attribute, its head included.
const MaxNest = math.MaxUint16

// header writes the head of an attribute with a payload of n bytes.
func (m *Messages) header(kind uint16, n int) {
	m.b = binary.NativeEndian.AppendUint16(m.b, uint16(unix.NLA_HDRLEN+n))
	m.b = binary.NativeEndian.AppendUint16(m.b, kind)
}

// pad fills up to where the next attribute may begin.
func (m *Messages) pad() {
	for len(m.b)%unix.NLA_ALIGNTO != 0 {
		m.b = append(m.b, 0)
	}
}

// number gives the messages consecutive sequence numbers from first on.
func (m *Messages) number(first uint32) {
	for b := m.b; len(b) >= unix.NLMSG_HDRLEN; first++ {
		binary.NativeEndian.PutUint32(b[8:], first)
		b = b[binary.NativeEndian.Uint32(b):]
	}
}

// Attributes returns the attributes of the first message.
func (m *Messages) Attributes() []byte {
	return m.b[unix.NLMSG_HDRLEN+genHeader : binary.NativeEndian.Uint32(m.b)]
}
