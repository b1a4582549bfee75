package nftables

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// message writes netlink messages one behind the other into one buffer, each
// attribute where it belongs, without anything allocated for parts.
type message struct {
	b []byte
	// at is where the open message begins.
	at int
	// long tells that an attribute did not fit its 16-bit length.
	long bool
}

// reset empties the buffer and keeps its memory.
func (m *message) reset() { m.b, m.at, m.long = m.b[:0], 0, false }

// begin opens a message. The resource is a subsystem at the ends of a batch, and
// zero elsewhere.
func (m *message) begin(kind, flags uint16, sequence uint32, family byte, resource uint16) {
	m.at = len(m.b)
	m.b = append(m.b, 0, 0, 0, 0) // the length
	m.b = binary.NativeEndian.AppendUint16(m.b, kind)
	m.b = binary.NativeEndian.AppendUint16(m.b, unix.NLM_F_REQUEST|flags)
	m.b = binary.NativeEndian.AppendUint32(m.b, sequence)
	m.b = append(m.b, 0, 0, 0, 0) // the port: the kernel knows it
	// struct nfgenmsg: family, version, resource.
	m.b = append(m.b, family, unix.NFNETLINK_V0)
	m.b = binary.BigEndian.AppendUint16(m.b, resource)
}

// end closes the open message.
func (m *message) end() {
	binary.NativeEndian.PutUint32(m.b[m.at:], uint32(len(m.b)-m.at))
}

// header writes the head of an attribute with a payload of n bytes.
func (m *message) header(kind uint16, n int) {
	m.b = binary.NativeEndian.AppendUint16(m.b, uint16(unix.NLA_HDRLEN+n))
	m.b = binary.NativeEndian.AppendUint16(m.b, kind)
}

// pad fills up to where the next attribute may begin.
func (m *message) pad() {
	for len(m.b)%unix.NLA_ALIGNTO != 0 {
		m.b = append(m.b, 0)
	}
}

// number writes a 32-bit attribute; nftables takes them in network order.
func (m *message) number(kind uint16, v uint32) {
	m.header(kind, 4)
	m.b = binary.BigEndian.AppendUint32(m.b, v)
}

// wide writes a 64-bit attribute.
func (m *message) wide(kind uint16, v uint64) {
	m.header(kind, 8)
	m.b = binary.BigEndian.AppendUint64(m.b, v)
}

// data writes an attribute of raw bytes.
func (m *message) data(kind uint16, v []byte) {
	m.header(kind, len(v))
	m.b = append(m.b, v...)
	m.pad()
}

// text writes a string with the zero behind it that nftables asks for.
func (m *message) text(kind uint16, s string) {
	m.header(kind, len(s)+1)
	m.b = append(m.b, s...)
	m.b = append(m.b, 0)
	m.pad()
}

// nest opens an attribute that holds others; the result goes to close.
func (m *message) nest(kind uint16) int {
	at := len(m.b)
	m.header(kind|unix.NLA_F_NESTED, 0)
	return at
}

// close closes a nest.
func (m *message) close(at int) {
	n := len(m.b) - at
	m.long = m.long || n > 1<<16-1
	binary.NativeEndian.PutUint16(m.b[at:], uint16(n))
}
