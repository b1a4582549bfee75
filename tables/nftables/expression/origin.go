package expression

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// ipsSrcNAT and ipsDstNAT are IPS_SRC_NAT and IPS_DST_NAT of linux/netfilter/nf_conntrack_common.h.
const (
	ipsSrcNAT = 1 << 4
	ipsDstNAT = 1 << 5
)

// natRangeMapIPs is NF_NAT_RANGE_MAP_IPS of linux/netfilter/nf_nat.h. The kernel
// sets it itself where an address is given, and says so when it is read back.
const natRangeMapIPs = 1 << 0

// local compares the type of an address in the routing table with RTN_LOCAL.
func (e *encoder) local(m tables.MatchLocal) {
	flag := uint32(unix.NFTA_FIB_F_SADDR)
	if m.Side == tables.Destination {
		flag = unix.NFTA_FIB_F_DADDR
	}
	element, data := e.expression("fib")
	e.Uint32(unix.NFTA_FIB_DREG, reg1)
	e.Uint32(unix.NFTA_FIB_RESULT, unix.NFT_FIB_RESULT_ADDRTYPE)
	e.Uint32(unix.NFTA_FIB_FLAGS, flag)
	e.endExpression(element, data)
	e.compareNumber(m.Negated, unix.RTN_LOCAL)
}

// connSource compares the source of the connection's first packet.
func (e *encoder) connSource(m tables.MatchConnSource) {
	family, key := model.FamilyOf(m.Prefix.Addr()), uint32(ctSrcIP)
	if family == model.IPv6 {
		key = ctSrcIP6
	}
	e.bind(family)
	element, data := e.expression("ct")
	e.Uint32(unix.NFTA_CT_DREG, reg1)
	e.Uint32(unix.NFTA_CT_KEY, key)
	e.Uint8(unix.NFTA_CT_DIRECTION, ipCTDirOriginal)
	e.endExpression(element, data)
	e.comparePrefix(m.Prefix, false)
}

// ctSrcIP and ctSrcIP6 are NFT_CT_SRC_IP and NFT_CT_SRC_IP6.
const (
	ctSrcIP  = 19
	ctSrcIP6 = 21
)

// loop looks source and destination up, which lie in consecutive registers.
func (e *encoder) loop(m tables.MatchLoop) {
	e.bind(m.Family)
	second := uint32(reg32 + 1)
	if m.Family == model.IPv6 {
		second = reg2
	}
	size := uint32(AddressSize(m.Family))
	e.address(m.Family, tables.Source)
	e.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, addressOffset(m.Family, tables.Destination), size, second)
	e.lookup(m.Set, false)
}

// sourceNAT binds the source to the address in register 1.
func (m *Message) sourceNAT(f model.Family) {
	family := uint32(unix.NFPROTO_IPV4)
	if f == model.IPv6 {
		family = unix.NFPROTO_IPV6
	}
	element, data := m.expression("nat")
	m.Uint32(unix.NFTA_NAT_TYPE, unix.NFT_NAT_SNAT)
	m.Uint32(unix.NFTA_NAT_FAMILY, family)
	m.Uint32(unix.NFTA_NAT_REG_ADDR_MIN, reg1)
	m.Uint32(unix.NFTA_NAT_REG_ADDR_MAX, reg1)
	m.Uint32(unix.NFTA_NAT_FLAGS, natRangeMapIPs)
	m.endExpression(element, data)
}

// The numbers of Ethernet (linux/if_arp.h, linux/if_ether.h), and the places of its header's fields.
const (
	typeEthernet = 1

	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd

	etherSourceOffset, etherSourceSize = 6, 6
	etherTypeOffset                    = 12
)

// sender looks the MAC address and the source address up, which lie in consecutive registers. It binds the
// rule to the family as nft does behind a match on the Ethernet header.
func (e *encoder) sender(m tables.MatchSender) {
	e.meta(unix.NFT_META_IIFTYPE, reg1)
	e.compare(unix.NFT_CMP_EQ, binary.NativeEndian.AppendUint16(nil, typeEthernet)...)
	if e.family != m.Family {
		e.family = m.Family
		kind := uint16(etherIPv4)
		if m.Family == model.IPv6 {
			kind = etherIPv6
		}
		e.payload(unix.NFT_PAYLOAD_LL_HEADER, etherTypeOffset, 2, reg1)
		e.compare(unix.NFT_CMP_EQ, binary.BigEndian.AppendUint16(nil, kind)...)
	}
	e.payload(unix.NFT_PAYLOAD_LL_HEADER, etherSourceOffset, etherSourceSize, reg1)
	e.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, addressOffset(m.Family, tables.Source), uint32(AddressSize(m.Family)), reg32+2)
	e.lookup(m.Set, false)
}
