package foreign

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// Packet is a packet of UDP in IPv4 that comes from the network to this node.
type Packet struct {
	// Source and Destination may be zero, for unknown. Interface is the one by which the packet comes in; it may be empty, for
	// unknown.
	Source, Destination netip.Addr
	Interface           Interface
	// Port is the destination port. Mark is the packet's mark.
	Port uint16
	Mark uint32
	// IPTables includes the tables of iptables.
	IPTables bool
}

// Interface is an interface with its number.
type Interface struct {
	Name  string
	Index int
}

func (p Packet) meta(key uint32) []octet {
	switch {
	case key == unix.NFT_META_NFPROTO:
		return known([]byte{unix.NFPROTO_IPV4})
	case key == unix.NFT_META_L4PROTO:
		return known([]byte{unix.IPPROTO_UDP})
	case key == unix.NFT_META_PROTOCOL:
		return known([]byte{0x08, 0x00})
	case key == unix.NFT_META_PKTTYPE:
		return known([]byte{unix.PACKET_HOST})
	case key == unix.NFT_META_MARK:
		return known(native(p.Mark))
	case key == unix.NFT_META_IIF && p.Interface.Index != 0:
		return known(native(uint32(p.Interface.Index)))
	case key == unix.NFT_META_IIFNAME && p.Interface.Name != "":
		return known(interfaceName(p.Interface.Name))
	}
	return unknown(registerSize)
}

// interfaceName returns a name as the kernel has it in a register.
func interfaceName(name string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return b
}

// Bits of conntrack's states (NF_CT_STATE_BIT of linux/netfilter/nf_conntrack_common.h).
const (
	stateEstablished = 2
	stateNew         = 8
)

// connection: the packet's connection is new.
func (Packet) connection(key uint32) []octet {
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

func (p Packet) header(base uint32) []octet {
	const network, transport, addresses = 20, 8, 12
	var header []octet
	switch base {
	case unix.NFT_PAYLOAD_NETWORK_HEADER:
		header = unknown(network)
		header[0], header[9] = octet{0x45, allBits}, octet{unix.IPPROTO_UDP, allBits}
		if a := p.Source; a.Is4() {
			copy(header[addresses:], known(a.AsSlice()))
		}
		if a := p.Destination; a.Is4() {
			copy(header[addresses+4:], known(a.AsSlice()))
		}
	case unix.NFT_PAYLOAD_TRANSPORT_HEADER:
		header = unknown(transport)
		header[2], header[3] = octet{byte(p.Port >> 8), allBits}, octet{byte(p.Port), allBits}
	}
	return header
}

func (Packet) route(_, _ uint32) []octet { return unknown(registerSize) }
