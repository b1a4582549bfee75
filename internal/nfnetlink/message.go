package nfnetlink

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Messages are messages that are sent at once and answered one by one. Numbers
// in them are marked as being in network order, which ipset asks for.
type Messages struct {
	Buffer
	// count is the number of begun messages.
	count int
}

// Reset empties the buffer and keeps its memory.
func (m *Messages) Reset() {
	m.Buffer.Reset()
	m.count = 0
}

// Len returns the number of bytes written.
func (m *Messages) Len() int { return len(m.B) }

// Count returns the number of messages.
func (m *Messages) Count() int { return m.count }

// Begin opens a message of a subsystem. Its sequence number is set when it is
// sent.
func (m *Messages) Begin(subsystem, kind uint8, flags uint16, family byte) {
	m.count++
	m.Buffer.Begin(uint16(subsystem)<<8|uint16(kind), flags, 0, family, 0)
}

// Uint16 writes an attribute of 16 bits.
func (m *Messages) Uint16(kind uint16, v uint16) {
	m.Buffer.Uint16(kind|unix.NLA_F_NET_BYTEORDER, v)
}

// Uint32 writes an attribute of 32 bits.
func (m *Messages) Uint32(kind uint16, v uint32) {
	m.Buffer.Uint32(kind|unix.NLA_F_NET_BYTEORDER, v)
}

// Data writes an attribute of bytes.
func (m *Messages) Data(kind uint16, v []byte) { m.Buffer.Data(kind|unix.NLA_F_NET_BYTEORDER, v) }

// number gives the messages consecutive sequence numbers from first on.
func (m *Messages) number(first uint32) {
	for b := m.B; len(b) >= unix.NLMSG_HDRLEN; first++ {
		binary.NativeEndian.PutUint32(b[8:], first)
		b = b[binary.NativeEndian.Uint32(b):]
	}
}

// Attributes returns the attributes of the first message.
func (m *Messages) Attributes() []byte {
	return m.B[unix.NLMSG_HDRLEN+genHeader : binary.NativeEndian.Uint32(m.B)]
}
