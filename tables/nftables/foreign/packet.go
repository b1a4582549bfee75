package foreign

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// Packet is a packet of UDP that comes from the network to this node. It is of IPv4 if both addresses are unknown.
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

// isIPv6 reports whether the packet is one of IPv6.
func (p Packet) isIPv6() bool { return p.Source.Is6() || p.Destination.Is6() }

// family returns the family of tables that get only packets of the packet's version.
func (p Packet) family() family {
	if p.isIPv6() {
		return family{unix.NFPROTO_IPV6, "ip6"}
	}
	return family{unix.NFPROTO_IPV4, "ip"}
}

// etherType returns the type of Ethernet frames with packets of IPv4 or IPv6.
func etherType(ipv6 bool) []octet {
	if ipv6 {
		return known([]byte{0x86, 0xdd})
	}
	return known([]byte{0x08, 0x00})
}

func (p Packet) meta(key uint32) []octet {
	switch {
	case key == unix.NFT_META_NFPROTO:
		return known([]byte{p.family().number})
	case key == unix.NFT_META_L4PROTO:
		return known([]byte{unix.IPPROTO_UDP})
	case key == unix.NFT_META_PROTOCOL:
		return etherType(p.isIPv6())
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
	switch base {
	case unix.NFT_PAYLOAD_NETWORK_HEADER:
		return p.network()
	case unix.NFT_PAYLOAD_TRANSPORT_HEADER:
		header := unknown(8)
		header[2], header[3] = octet{byte(p.Port >> 8), allBits}, octet{byte(p.Port), allBits}
		return header
	}
	return nil
}

// network returns the header of IP, which ends with both addresses.
func (p Packet) network() []octet {
	size, address, first, protocol := 20, 4, octet{0x45, allBits}, 9
	if p.isIPv6() {
		size, address, first, protocol = 40, 16, octet{0x60, 0xf0}, 6
	}
	header := unknown(size)
	header[0], header[protocol] = first, octet{unix.IPPROTO_UDP, allBits}
	if p.Source.IsValid() {
		copy(header[size-2*address:], known(p.Source.AsSlice()))
	}
	if p.Destination.IsValid() {
		copy(header[size-address:], known(p.Destination.AsSlice()))
	}
	return header
}

func (Packet) route(_, _ uint32) []octet { return unknown(registerSize) }
