package openflow

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"antrea.io/libOpenflow/openflow15"
)

// Field is a packet field, tunnel field or register that flows match, set or
// copy. The order of the constants is the order on the wire: OpenFlow wants a
// field's prerequisites before it.
type Field uint8

// The fields in use.
const (
	EthType Field = iota + 1
	IPProto
	Reg0
	Reg1
	TunSrc
	TunDst
	InPort
	EthSrc
	EthDst
	IPv4Src
	IPv4Dst
	IPv6Src
	IPv6Dst
	ARPSpa
	ARPTpa
	ARPOp
	ARPSha
	ARPTha
	ICMPv6Type
	ICMPv6Code
	NDTarget
	NDSll
	NDTll
)

// format is how a field's value is written.
type format uint8

const (
	decimal format = iota + 1
	hexadecimal
	mac
	ip
)

// spec describes a field: its name in matches and set_field of ovs-ofctl, its
// OXM or NXM name, its width in bytes and its notation.
type spec struct {
	match, set, oxm string
	width           int
	format          format
}

func (f Field) spec() spec {
	switch f {
	case EthType:
		return spec{"dl_type", "eth_type", "OXM_OF_ETH_TYPE", 2, hexadecimal}
	case IPProto:
		return spec{"nw_proto", "ip_proto", "OXM_OF_IP_PROTO", 1, decimal}
	case Reg0:
		return spec{"reg0", "reg0", "NXM_NX_REG0", 4, hexadecimal}
	case Reg1:
		return spec{"reg1", "reg1", "NXM_NX_REG1", 4, hexadecimal}
	case TunSrc:
		return spec{"tun_src", "tun_src", "NXM_NX_TUN_IPV4_SRC", 4, ip}
	case TunDst:
		return spec{"tun_dst", "tun_dst", "NXM_NX_TUN_IPV4_DST", 4, ip}
	case InPort:
		return spec{"in_port", "in_port", "OXM_OF_IN_PORT", 4, decimal}
	case EthSrc:
		return spec{"dl_src", "eth_src", "OXM_OF_ETH_SRC", 6, mac}
	case EthDst:
		return spec{"dl_dst", "eth_dst", "OXM_OF_ETH_DST", 6, mac}
	case IPv4Src:
		return spec{"nw_src", "ip_src", "OXM_OF_IPV4_SRC", 4, ip}
	case IPv4Dst:
		return spec{"nw_dst", "ip_dst", "OXM_OF_IPV4_DST", 4, ip}
	case IPv6Src:
		return spec{"ipv6_src", "ipv6_src", "OXM_OF_IPV6_SRC", 16, ip}
	case IPv6Dst:
		return spec{"ipv6_dst", "ipv6_dst", "OXM_OF_IPV6_DST", 16, ip}
	}
	return f.neighbourSpec()
}

// neighbourSpec describes the fields of ARP and neighbour discovery.
func (f Field) neighbourSpec() spec {
	switch f {
	case ARPSpa:
		return spec{"arp_spa", "arp_spa", "OXM_OF_ARP_SPA", 4, ip}
	case ARPTpa:
		return spec{"arp_tpa", "arp_tpa", "OXM_OF_ARP_TPA", 4, ip}
	case ARPOp:
		return spec{"arp_op", "arp_op", "OXM_OF_ARP_OP", 2, decimal}
	case ARPSha:
		return spec{"arp_sha", "arp_sha", "OXM_OF_ARP_SHA", 6, mac}
	case ARPTha:
		return spec{"arp_tha", "arp_tha", "OXM_OF_ARP_THA", 6, mac}
	case ICMPv6Type:
		return spec{"icmp_type", "icmpv6_type", "OXM_OF_ICMPV6_TYPE", 1, decimal}
	case ICMPv6Code:
		return spec{"icmp_code", "icmpv6_code", "OXM_OF_ICMPV6_CODE", 1, decimal}
	case NDTarget:
		return spec{"nd_target", "nd_target", "OXM_OF_IPV6_ND_TARGET", 16, ip}
	case NDSll:
		return spec{"nd_sll", "nd_sll", "OXM_OF_IPV6_ND_SLL", 6, mac}
	case NDTll:
		return spec{"nd_tll", "nd_tll", "OXM_OF_IPV6_ND_TLL", 6, mac}
	}
	return spec{match: fmt.Sprintf("field(%d)", uint8(f))}
}

// nxm returns the name that "move" has in ovs-ofctl's dumps: fields that NXM
// knew before OXM keep the older name there.
func (f Field) nxm() string {
	switch f {
	case EthSrc:
		return "NXM_OF_ETH_SRC"
	case EthDst:
		return "NXM_OF_ETH_DST"
	case ARPSpa:
		return "NXM_OF_ARP_SPA"
	case ARPTpa:
		return "NXM_OF_ARP_TPA"
	case ARPSha:
		return "NXM_NX_ARP_SHA"
	case ARPTha:
		return "NXM_NX_ARP_THA"
	}
	return f.spec().oxm
}

// term is a field with a value and, if not nil, a mask.
type term struct {
	field       Field
	value, mask []byte
}

func (t term) valueString() string {
	s := t.field.spec()
	switch s.format {
	case mac:
		return withMask(net.HardwareAddr(t.value).String(), t.mask, func(m []byte) string { return net.HardwareAddr(m).String() })
	case ip:
		return withMask(addrString(t.value), t.mask, maskString)
	case hexadecimal:
		return withMask(hex(t.value), t.mask, hex)
	case decimal:
		return withMask(strconv.FormatUint(number(t.value), 10), t.mask, hex)
	}
	return "?"
}

// wire encodes the term for libOpenflow.
func (t term) wire() (*openflow15.MatchField, error) {
	s := t.field.spec()
	if s.width == 0 || len(t.value) != s.width || (t.mask != nil && len(t.mask) != s.width) {
		return nil, fmt.Errorf("field %s: value of %d bytes, want %d", s.match, len(t.value), s.width)
	}
	header, err := openflow15.FindFieldHeaderByName(s.oxm, t.mask != nil)
	if err != nil {
		return nil, fmt.Errorf("field %s: %w", s.match, err)
	}
	header.Value = &openflow15.ByteArrayField{Data: t.value, Length: uint8(s.width)}
	if t.mask != nil {
		header.Mask = &openflow15.ByteArrayField{Data: t.mask, Length: uint8(s.width)}
	}
	return header, nil
}

func withMask(value string, mask []byte, render func([]byte) string) string {
	if mask == nil {
		return value
	}
	return value + "/" + render(mask)
}

func addrString(b []byte) string {
	a, ok := netip.AddrFromSlice(b)
	if !ok {
		return "?"
	}
	return a.String()
}

// maskString renders a contiguous mask as its length.
func maskString(mask []byte) string {
	ones, _ := net.IPMask(mask).Size()
	return strconv.Itoa(ones)
}

func number(b []byte) uint64 {
	var n uint64
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return n
}

// hex writes zero as ovs-ofctl does, without a prefix.
func hex(b []byte) string {
	n := number(b)
	if n == 0 {
		return "0"
	}
	return "0x" + strconv.FormatUint(n, 16)
}

func uint16Bytes(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }
func uint32Bytes(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
