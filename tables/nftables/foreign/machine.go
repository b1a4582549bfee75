package foreign

import (
	"golang.org/x/sys/unix"
)

// registerSize is the size of a register in bytes, and registers the size of all.
const (
	registerSize = 16
	registers    = 5 * registerSize
)

// octet is a byte of which some bits are known. The others are zero in the value.
type octet struct{ value, known byte }

const allBits = 0xff

func known(b []byte) []octet {
	all := make([]octet, len(b))
	for i, v := range b {
		all[i] = octet{v, allBits}
	}
	return all
}

func unknown(n int) []octet { return make([]octet, n) }

// facts are the known fields of a packet. Each function returns at least as many bytes as the field has.
type facts interface {
	// meta returns a field of the packet's metadata, connection one of its connection.
	meta(key uint32) []octet
	connection(key uint32) []octet
	// header returns the first bytes of a header.
	header(base uint32) []octet
	// route returns the result of a question for a route.
	route(result, flags uint32) []octet
}

// machine has the registers of a rule, and the packet.
type machine struct {
	facts
	registers [registers]octet
	// marked says that the mark is not that of the packet.
	marked bool
}

// at returns the place of a register. NFT_REG32_00 is the first quarter of NFT_REG_1.
func at(register uint32) int {
	if register >= unix.NFT_REG32_00 {
		return registerSize + 4*int(register-unix.NFT_REG32_00)
	}
	return registerSize * int(register)
}

// set writes a register.
func (m *machine) set(register uint32, value []octet) {
	if from := at(register); from < registers {
		n := copy(m.registers[from:], value)
		// The kernel fills the rest of the last four bytes with zeros.
		for i := from + n; i%4 != 0 && i < registers; i++ {
			m.registers[i] = octet{0, allBits}
		}
	}
}

// get reads the first bytes of a register, if all are known.
func (m *machine) get(register uint32, n int) ([]byte, bool) {
	from := at(register)
	if n <= 0 || from+n > registers {
		return nil, false
	}
	out := make([]byte, n)
	for i, o := range m.registers[from : from+n] {
		if o.known != allBits {
			return nil, false
		}
		out[i] = o.value
	}
	return out, true
}

// metadata returns a field of the packet's metadata.
func (m *machine) metadata(key uint32) []octet {
	if key == unix.NFT_META_MARK && m.marked {
		return unknown(registerSize)
	}
	return m.meta(key)
}

// payload returns bytes of a header. All beyond the known ones are unknown.
func (m *machine) payload(base, offset, size uint32) []octet {
	out := unknown(int(min(size, registers)))
	if h := m.header(base); int64(offset) < int64(len(h)) {
		copy(out, h[offset:])
	}
	return out
}
