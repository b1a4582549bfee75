package kernel

import (
	"encoding/binary"
	"iter"
	"net/netip"

	"go4.org/netipx"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/model"
)

// Attributes of elements (uapi/linux/netfilter/ipset/ip_set.h).
const (
	attrIP           = 1
	attrCIDR         = 3
	attrPort         = 4
	attrProto        = 7
	attrElementFlags = 8
	attrLineNo       = 9

	attrIPv4 = 1
	attrIPv6 = 2

	// elementNoMatch is IPSET_FLAG_NOMATCH. The longest prefix of a hash:net decides
	// about an address; with this flag the address is not in the set.
	elementNoMatch = 1 << 2
)

// An element is a member as the kernel can hold it.
type element = model.Member

// Elements yields the elements that a member stands for: the kernel takes no
// prefix of length zero, so all addresses are two halves.
func Elements(m model.Member) iter.Seq[model.Member] {
	return func(yield func(model.Member) bool) {
		if !everything(m) {
			yield(m)
			return
		}
		first := netip.PrefixFrom(m.Prefix.Addr(), 1)
		second := netip.PrefixFrom(netipx.PrefixLastIP(first).Next(), 1)
		_ = yield(element{Prefix: first}) && yield(element{Prefix: second})
	}
}

// everything reports whether the member is all addresses of its family.
func everything(m model.Member) bool { return m.Prefix.IsValid() && m.Prefix.Bits() == 0 }

// everyAddress returns the member that is all addresses of a family.
func everyAddress(f model.Family) model.Member {
	a := netip.IPv4Unspecified()
	if f == model.IPv6 {
		a = netip.IPv6Unspecified()
	}
	return model.Member{Prefix: netip.PrefixFrom(a, 0)}
}

// writeElement writes an element of a set of the kind, as data of a message
// that adds or deletes. The kernel names the line of the one that it refuses.
func writeElement(m *nfnetlink.Messages, kind model.GroupKind, e element, line int) {
	data := m.Nest(attrData)
	ip := m.Nest(attrIP)
	if a := e.Prefix.Addr(); a.Is4() {
		b := a.As4()
		m.Data(attrIPv4, b[:])
	} else {
		b := a.As16()
		m.Data(attrIPv6, b[:])
	}
	m.Close(ip)
	switch kind {
	case model.Networks:
		m.Uint8(attrCIDR, uint8(e.Prefix.Bits()))
		if e.Except {
			m.Uint32(attrElementFlags, elementNoMatch)
		}
	case model.AddressPorts:
		m.Uint16(attrPort, e.Port)
		m.Uint8(attrProto, uint8(e.Protocol))
	}
	m.Uint32(attrLineNo, uint32(line))
	m.Close(data)
}

// elementSize bounds the bytes that writeElement writes.
const elementSize = 64

// parseElement is the inverse of writeElement. It returns false for elements that
// writeElement never writes.
func parseElement(kind model.GroupKind, data []byte) (element, bool) {
	var e element
	var a netip.Addr
	bits := -1
	for attr, value := range nfnetlink.Attributes(data) {
		switch {
		case attr == attrIP:
			for _, raw := range nfnetlink.Attributes(value) {
				a, _ = netip.AddrFromSlice(raw)
			}
		case attr == attrElementFlags:
			if kind != model.Networks || len(value) != 4 || binary.BigEndian.Uint32(value) != elementNoMatch {
				return element{}, false
			}
			e.Except = true
		case attr == attrCIDR && kind == model.Networks && len(value) == 1:
			bits = int(value[0])
		case attr == attrPort && kind == model.AddressPorts && len(value) == 2:
			e.Port = binary.BigEndian.Uint16(value)
		case attr == attrProto && kind == model.AddressPorts && len(value) == 1:
			e.Protocol = model.Protocol(value[0])
		}
	}
	if bits < 0 {
		bits = a.BitLen()
	}
	e.Prefix = netip.PrefixFrom(a, bits)
	return e, e.Prefix.IsValid()
}

// refusedElement returns the element of a message that the kernel names when it
// returns the message's attributes with an error, or nil.
func refusedElement(attributes []byte, elements []element) *element {
	for attr, value := range nfnetlink.Attributes(attributes) {
		if attr == attrLineNo && len(value) == 4 {
			if line := int(binary.BigEndian.Uint32(value)); line > 0 && line <= len(elements) {
				return &elements[line-1]
			}
		}
	}
	return nil
}

// protocolFamily returns the kernel's number of a family.
func protocolFamily(f model.Family) byte {
	if f == model.IPv6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// typeName returns the kernel's type for sets of a kind, or "".
func typeName(k model.GroupKind) string {
	switch k {
	case model.Addresses:
		return "hash:ip"
	case model.Networks:
		return "hash:net"
	case model.AddressPorts:
		return "hash:ip,port"
	}
	return ""
}
