package openflow

import (
	"fmt"
	"net/netip"
)

// Field is a packet field, tunnel field or register that flows match, set or
// copy. The order of the constants is the order on the wire (spec.position).
// OpenFlow wants a field's prerequisites before it.
type Field uint8

// The fields in use.
const (
	Reg0 Field = iota + 1
	Reg1
	Reg2
	Reg3
	Reg4
	Reg5
	Reg6
	Reg7
	Reg8
	Reg9
	Reg10
	TunSrc
	TunDst
	PktMark
	ConjID
	CTState
	CTZone
	CTMark
	CTLabel
	TunIPv6Src
	TunIPv6Dst
	InPort
	EthDst
	EthSrc
	EthType
	IPProto
	IPFrag
	IPTTL
	IPv4Src
	IPv4Dst
	TCPSrc
	TCPDst
	UDPSrc
	UDPDst
	SCTPSrc
	SCTPDst
	ICMPv4Type
	ICMPv4Code
	ARPOp
	ARPSpa
	ARPTpa
	ARPSha
	ARPTha
	IPv6Src
	IPv6Dst
	ICMPv6Type
	ICMPv6Code
	NDTarget
	NDSll
	NDTll
	TunID
	TCPFlags

	lastField = TCPFlags
)

// format is how a field's value is written.
type format uint8

const (
	decimal format = iota + 1
	hexadecimal
	mac
	ip
	flags
	fragment
)

// class is the upper half of an OXM header: the organisation that numbers the field.
type class uint16

const (
	basic    class = 0x0000 // NXM's own of OpenFlow 1.0
	nicira   class = 0x0001
	openFlow class = 0x8000
)

// spec describes a field: its number on the wire, its width in bytes, its
// notation, and its name in matches and set_field of ovs-ofctl and in OXM.
type spec struct {
	class           class
	number          uint8
	width           int
	format          format
	match, set, oxm string
}

func (f Field) spec() spec {
	switch f {
	case IPFrag:
		return spec{nicira, 26, 1, fragment, "nw_frag", "nw_frag", "NXM_NX_IP_FRAG"}
	case IPTTL:
		return spec{nicira, 29, 1, decimal, "nw_ttl", "nw_ttl", "NXM_NX_IP_TTL"}
	case EthType:
		return spec{openFlow, 5, 2, hexadecimal, "dl_type", "eth_type", "OXM_OF_ETH_TYPE"}
	case IPProto:
		return spec{openFlow, 10, 1, decimal, "nw_proto", "ip_proto", "OXM_OF_IP_PROTO"}
	case TunID:
		return spec{openFlow, 38, 8, hexadecimal, "tun_id", "tun_id", "OXM_OF_TUNNEL_ID"}
	case TunSrc:
		return spec{nicira, 31, 4, ip, "tun_src", "tun_src", "NXM_NX_TUN_IPV4_SRC"}
	case TunDst:
		return spec{nicira, 32, 4, ip, "tun_dst", "tun_dst", "NXM_NX_TUN_IPV4_DST"}
	case TunIPv6Src:
		return spec{nicira, 109, 16, ip, "tun_ipv6_src", "tun_ipv6_src", "NXM_NX_TUN_IPV6_SRC"}
	case TunIPv6Dst:
		return spec{nicira, 110, 16, ip, "tun_ipv6_dst", "tun_ipv6_dst", "NXM_NX_TUN_IPV6_DST"}
	case InPort:
		return spec{openFlow, 0, 4, decimal, "in_port", "in_port", "OXM_OF_IN_PORT"}
	case EthSrc:
		return spec{openFlow, 4, 6, mac, "dl_src", "eth_src", "OXM_OF_ETH_SRC"}
	case EthDst:
		return spec{openFlow, 3, 6, mac, "dl_dst", "eth_dst", "OXM_OF_ETH_DST"}
	case IPv4Src:
		return spec{openFlow, 11, 4, ip, "nw_src", "ip_src", "OXM_OF_IPV4_SRC"}
	case IPv4Dst:
		return spec{openFlow, 12, 4, ip, "nw_dst", "ip_dst", "OXM_OF_IPV4_DST"}
	case IPv6Src:
		return spec{openFlow, 26, 16, ip, "ipv6_src", "ipv6_src", "OXM_OF_IPV6_SRC"}
	case IPv6Dst:
		return spec{openFlow, 27, 16, ip, "ipv6_dst", "ipv6_dst", "OXM_OF_IPV6_DST"}
	case Reg0, Reg1, Reg2, Reg3, Reg4, Reg5, Reg6, Reg7, Reg8, Reg9, Reg10:
		return f.registerSpec()
	case PktMark, CTState, CTZone, CTMark, CTLabel, ConjID:
		return f.metadataSpec()
	case TCPSrc, TCPDst, UDPSrc, UDPDst, SCTPSrc, SCTPDst, TCPFlags:
		return f.transportSpec()
	}
	return f.neighbourSpec()
}

func (f Field) registerSpec() spec {
	switch f {
	case Reg0:
		return spec{nicira, 0, 4, hexadecimal, "reg0", "reg0", "NXM_NX_REG0"}
	case Reg1:
		return spec{nicira, 1, 4, hexadecimal, "reg1", "reg1", "NXM_NX_REG1"}
	case Reg2:
		return spec{nicira, 2, 4, hexadecimal, "reg2", "reg2", "NXM_NX_REG2"}
	case Reg3:
		return spec{nicira, 3, 4, hexadecimal, "reg3", "reg3", "NXM_NX_REG3"}
	case Reg4:
		return spec{nicira, 4, 4, hexadecimal, "reg4", "reg4", "NXM_NX_REG4"}
	case Reg5:
		return spec{nicira, 5, 4, hexadecimal, "reg5", "reg5", "NXM_NX_REG5"}
	case Reg6:
		return spec{nicira, 6, 4, hexadecimal, "reg6", "reg6", "NXM_NX_REG6"}
	case Reg7:
		return spec{nicira, 7, 4, hexadecimal, "reg7", "reg7", "NXM_NX_REG7"}
	case Reg8:
		return spec{nicira, 8, 4, hexadecimal, "reg8", "reg8", "NXM_NX_REG8"}
	case Reg9:
		return spec{nicira, 9, 4, hexadecimal, "reg9", "reg9", "NXM_NX_REG9"}
	case Reg10:
		return spec{nicira, 10, 4, hexadecimal, "reg10", "reg10", "NXM_NX_REG10"}
	}
	return unknownSpec(f)
}

// unknownSpec has no width: such a field cannot be encoded.
func unknownSpec(f Field) spec { return spec{match: fmt.Sprintf("field(%d)", uint8(f))} }

// metadataSpec describes the fields of conjunctions, connection tracking and
// packet marks.
func (f Field) metadataSpec() spec {
	switch f {
	case PktMark:
		return spec{nicira, 33, 4, hexadecimal, "pkt_mark", "pkt_mark", "NXM_NX_PKT_MARK"}
	case ConjID:
		return spec{nicira, 37, 4, decimal, "conj_id", "conj_id", "NXM_NX_CONJ_ID"}
	case CTState:
		return spec{nicira, 105, 4, flags, "ct_state", "ct_state", "NXM_NX_CT_STATE"}
	case CTZone:
		return spec{nicira, 106, 2, hexadecimal, "ct_zone", "ct_zone", "NXM_NX_CT_ZONE"}
	case CTMark:
		return spec{nicira, 107, 4, hexadecimal, "ct_mark", "ct_mark", "NXM_NX_CT_MARK"}
	case CTLabel:
		return spec{nicira, 108, 16, hexadecimal, "ct_label", "ct_label", "NXM_NX_CT_LABEL"}
	}
	return unknownSpec(f)
}

// transportSpec describes the transport ports and the flags of TCP.
func (f Field) transportSpec() spec {
	switch f {
	case TCPSrc:
		return spec{openFlow, 13, 2, decimal, "tp_src", "tcp_src", "OXM_OF_TCP_SRC"}
	case TCPDst:
		return spec{openFlow, 14, 2, decimal, "tp_dst", "tcp_dst", "OXM_OF_TCP_DST"}
	case UDPSrc:
		return spec{openFlow, 15, 2, decimal, "tp_src", "udp_src", "OXM_OF_UDP_SRC"}
	case UDPDst:
		return spec{openFlow, 16, 2, decimal, "tp_dst", "udp_dst", "OXM_OF_UDP_DST"}
	case SCTPSrc:
		return spec{openFlow, 17, 2, decimal, "tp_src", "sctp_src", "OXM_OF_SCTP_SRC"}
	case SCTPDst:
		return spec{openFlow, 18, 2, decimal, "tp_dst", "sctp_dst", "OXM_OF_SCTP_DST"}
	case TCPFlags:
		return spec{openFlow, 42, 2, flags, "tcp_flags", "tcp_flags", "OXM_OF_TCP_FLAGS"}
	}
	return unknownSpec(f)
}

// neighbourSpec describes the fields of ARP and neighbour discovery.
func (f Field) neighbourSpec() spec {
	switch f {
	case ARPSpa:
		return spec{openFlow, 22, 4, ip, "arp_spa", "arp_spa", "OXM_OF_ARP_SPA"}
	case ARPTpa:
		return spec{openFlow, 23, 4, ip, "arp_tpa", "arp_tpa", "OXM_OF_ARP_TPA"}
	case ARPOp:
		return spec{openFlow, 21, 2, decimal, "arp_op", "arp_op", "OXM_OF_ARP_OP"}
	case ARPSha:
		return spec{openFlow, 24, 6, mac, "arp_sha", "arp_sha", "OXM_OF_ARP_SHA"}
	case ARPTha:
		return spec{openFlow, 25, 6, mac, "arp_tha", "arp_tha", "OXM_OF_ARP_THA"}
	case ICMPv4Type:
		return spec{openFlow, 19, 1, decimal, "icmp_type", "icmp_type", "NXM_OF_ICMP_TYPE"}
	case ICMPv4Code:
		return spec{openFlow, 20, 1, decimal, "icmp_code", "icmp_code", "NXM_OF_ICMP_CODE"}
	case ICMPv6Type:
		return spec{openFlow, 29, 1, decimal, "icmp_type", "icmpv6_type", "OXM_OF_ICMPV6_TYPE"}
	case ICMPv6Code:
		return spec{openFlow, 30, 1, decimal, "icmp_code", "icmpv6_code", "OXM_OF_ICMPV6_CODE"}
	case NDTarget:
		return spec{openFlow, 31, 16, ip, "nd_target", "nd_target", "OXM_OF_IPV6_ND_TARGET"}
	case NDSll:
		return spec{openFlow, 32, 6, mac, "nd_sll", "nd_sll", "OXM_OF_IPV6_ND_SLL"}
	case NDTll:
		return spec{openFlow, 33, 6, mac, "nd_tll", "nd_tll", "OXM_OF_IPV6_ND_TLL"}
	}
	return unknownSpec(f)
}

// TunnelSource returns the field for the source of the tunnel's outer header, by the family of the address.
func TunnelSource(a netip.Addr) Field {
	if a.Is4() {
		return TunSrc
	}
	return TunIPv6Src
}

// TunnelDestination returns the field for the destination of the tunnel's outer header, by the family of the address.
func TunnelDestination(a netip.Addr) Field {
	if a.Is4() {
		return TunDst
	}
	return TunIPv6Dst
}

// LongName returns the name that "move", "load" and "learn" have in ovs-ofctl's dumps: fields that
// NXM knew before OXM keep the older name there.
func (f Field) LongName() string {
	switch f {
	case EthSrc:
		return "NXM_OF_ETH_SRC"
	case EthDst:
		return "NXM_OF_ETH_DST"
	case ARPOp:
		return "NXM_OF_ARP_OP"
	case ARPSpa:
		return "NXM_OF_ARP_SPA"
	case ARPTpa:
		return "NXM_OF_ARP_TPA"
	case ARPSha:
		return "NXM_NX_ARP_SHA"
	case ARPTha:
		return "NXM_NX_ARP_THA"
	case IPv4Src:
		return "NXM_OF_IP_SRC"
	case IPv4Dst:
		return "NXM_OF_IP_DST"
	case TCPSrc:
		return "NXM_OF_TCP_SRC"
	case TCPDst:
		return "NXM_OF_TCP_DST"
	case UDPSrc:
		return "NXM_OF_UDP_SRC"
	case UDPDst:
		return "NXM_OF_UDP_DST"
	case IPv6Src:
		return "NXM_NX_IPV6_SRC"
	case IPv6Dst:
		return "NXM_NX_IPV6_DST"
	case NDTarget:
		return "NXM_NX_ND_TARGET"
	case TunID:
		return "NXM_NX_TUN_ID"
	}
	return f.spec().oxm
}

// Flags are the names of the field's bits, from the lowest, as far as we match them;
// none if it is a number or an address.
func (f Field) Flags() []string {
	switch f {
	case CTState:
		return []string{"new", "est", "rel", "rpl", "inv", "trk"}
	case TCPFlags:
		return []string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"}
	}
	return nil
}
