package nfnetlink

import (
	"encoding/binary"
	"math"

	"golang.org/x/sys/unix"
)

// MaxNest is the greatest length of one attribute, its header included.
const MaxNest = math.MaxUint16

// Buffer holds netlink messages, one behind the other. Attributes are written in place,
// without allocations for parts.
type Buffer struct {
	// B has the written messages.
	B []byte
	// Long reports that an attribute did not fit its length of 16 bits.
	Long bool
	// at is the start of the open message.
	at int
}

// Reset empties the buffer and keeps its memory.
func (b *Buffer) Reset() { b.B, b.at, b.Long = b.B[:0], 0, false }

// Begin opens a message. The resource is a subsystem at the ends of a batch, and
// zero elsewhere.
func (b *Buffer) Begin(kind, flags uint16, sequence uint32, family byte, resource uint16) {
	b.at = len(b.B)
	b.B = append(b.B, 0, 0, 0, 0) // the length
	b.B = binary.NativeEndian.AppendUint16(b.B, kind)
	b.B = binary.NativeEndian.AppendUint16(b.B, unix.NLM_F_REQUEST|flags)
	b.B = binary.NativeEndian.AppendUint32(b.B, sequence)
	b.B = append(b.B, 0, 0, 0, 0) // the port: the kernel knows it
	// struct nfgenmsg: family, version, resource.
	b.B = append(b.B, family, unix.NFNETLINK_V0)
	b.B = binary.BigEndian.AppendUint16(b.B, resource)
}

// End closes the open message.
func (b *Buffer) End() { binary.NativeEndian.PutUint32(b.B[b.at:], uint32(len(b.B)-b.at)) }

// Uint8 writes an attribute of one byte.
func (b *Buffer) Uint8(kind uint16, v uint8) {
	b.Header(kind, 1)
	b.B = append(b.B, v, 0, 0, 0)
}

// Uint16 writes an attribute of 16 bits in network order.
func (b *Buffer) Uint16(kind uint16, v uint16) {
	b.Header(kind, 2)
	b.B = binary.BigEndian.AppendUint16(b.B, v)
	b.B = append(b.B, 0, 0)
}

// Uint32 writes an attribute of 32 bits in network order.
func (b *Buffer) Uint32(kind uint16, v uint32) {
	b.Header(kind, 4)
	b.B = binary.BigEndian.AppendUint32(b.B, v)
}

// Uint64 writes an attribute of 64 bits in network order.
func (b *Buffer) Uint64(kind uint16, v uint64) {
	b.Header(kind, 8)
	b.B = binary.BigEndian.AppendUint64(b.B, v)
}

// Data writes an attribute of raw bytes.
func (b *Buffer) Data(kind uint16, v []byte) {
	b.Header(kind, len(v))
	b.B = append(b.B, v...)
	b.Pad()
}

// Text writes a string with the zero behind it that netfilter asks for.
func (b *Buffer) Text(kind uint16, s string) {
	b.Header(kind, len(s)+1)
	b.B = append(b.B, s...)
	b.B = append(b.B, 0)
	b.Pad()
}

// Nest opens an attribute that holds others, and returns the argument for Close.
func (b *Buffer) Nest(kind uint16) int {
	at := len(b.B)
	b.Header(kind|unix.NLA_F_NESTED, 0)
	return at
}

// Close closes a nest.
func (b *Buffer) Close(at int) {
	n := len(b.B) - at
	b.Long = b.Long || n > MaxNest
	binary.NativeEndian.PutUint16(b.B[at:], uint16(n))
}

// Pad fills up to where the next attribute may begin.
func (b *Buffer) Pad() {
	for len(b.B)%unix.NLA_ALIGNTO != 0 {
		b.B = append(b.B, 0)
	}
}

// Header writes the head of an attribute with a payload of n bytes.
func (b *Buffer) Header(kind uint16, n int) {
	b.B = binary.NativeEndian.AppendUint16(b.B, uint16(unix.NLA_HDRLEN+n))
	b.B = binary.NativeEndian.AppendUint16(b.B, kind)
}
