package foreign

import (
	"golang.org/x/sys/unix"
)

// registerSize is the size of a register in bytes, and registers the size of all.
const (
	registerSize = 16
	registers    = 5 * registerSize
)

// octet is a byte that may be known.
type octet struct {
	value byte
	known bool
}

func known(b []byte) []octet {
	all := make([]octet, len(b))
	for i, v := range b {
		all[i] = octet{v, true}
	}
	return all
}

func unknown(n int) []octet { return make([]octet, n) }

// machine has the registers of a rule, and the packet.
type machine struct {
	packet    Packet
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
			m.registers[i] = octet{0, true}
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
		if !o.known {
			return nil, false
		}
		out[i] = o.value
	}
	return out, true
}

// meta returns a field of the packet's metadata.
func (m *machine) meta(key uint32) []octet {
	in := m.packet.Interface
	switch {
	case key == unix.NFT_META_NFPROTO:
		return known([]byte{unix.NFPROTO_IPV4})
	case key == unix.NFT_META_L4PROTO:
		return known([]byte{unix.IPPROTO_UDP})
	case key == unix.NFT_META_PROTOCOL:
		return known([]byte{0x08, 0x00})
	case key == unix.NFT_META_PKTTYPE:
		return known([]byte{unix.PACKET_HOST})
	case key == unix.NFT_META_MARK && !m.marked:
		return known(native(m.packet.Mark))
	case key == unix.NFT_META_IIF && in.Index != 0:
		return known(native(uint32(in.Index)))
	case key == unix.NFT_META_IIFNAME && in.Name != "":
		name := make([]byte, unix.IFNAMSIZ)
		copy(name, in.Name)
		return known(name)
	}
	return unknown(registerSize)
}

// connection returns a field of the packet's connection, which is new.
func connection(key uint32) []octet {
	const stateNew = 8 // NF_CT_STATE_BIT(IP_CT_NEW)
	switch key {
	case unix.NFT_CT_STATE:
		return known(native(stateNew))
	case unix.NFT_CT_STATUS:
		return known(native(0))
	case unix.NFT_CT_DIRECTION:
		return known([]byte{0})
	}
	return unknown(registerSize)
}

// payload returns bytes of the packet.
func (m *machine) payload(base, offset, size uint32) []octet {
	const network, transport, addresses = 20, 8, 12
	var header []octet
	switch base {
	case unix.NFT_PAYLOAD_NETWORK_HEADER:
		header = unknown(network)
		header[0], header[9] = octet{0x45, true}, octet{unix.IPPROTO_UDP, true}
		if a := m.packet.Source; a.Is4() {
			copy(header[addresses:], known(a.AsSlice()))
		}
		if a := m.packet.Destination; a.Is4() {
			copy(header[addresses+4:], known(a.AsSlice()))
		}
	case unix.NFT_PAYLOAD_TRANSPORT_HEADER:
		header = unknown(transport)
		header[2], header[3] = octet{byte(m.packet.Port >> 8), true}, octet{byte(m.packet.Port), true}
	}
	out := unknown(int(min(size, registers)))
	for i := range out {
		if j := int(offset) + i; j < len(header) {
			out[i] = header[j]
		}
	}
	return out
}
