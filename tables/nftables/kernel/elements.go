package kernel

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/google/nftables/expr"
	"go4.org/netipx"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/expression"
)

// element is an element as the kernel holds it.
type element struct {
	// The key is the first size bytes of buffer, which is as long as our longest key.
	buffer [keySize]byte
	size   int
	// last is the last key of a range of concatenations, which only Senders have.
	last     [macSize + 16]byte
	lastSize int
	end      bool // of an interval
	// verdict is that of an entry of a map, or its number.
	verdict tables.Action
	// odd reports that the element has a property that our elements never have.
	odd bool
}

// keySize is the longest key: two IPv6 addresses.
const keySize = 16 + 16

func (e *element) key() []byte { return e.buffer[:e.size] }

// decodeMembers returns the members that elements stand for, and whether all
// of them are as we write them.
func decodeMembers(sh Shape, elements []element) (map[model.Member]tables.Action, bool) {
	if sh.Kind == model.Networks {
		return decodeIntervals(sh, elements)
	}
	out := make(map[model.Member]tables.Action, len(elements))
	for i := range elements {
		e := &elements[i]
		m, ok := decodeKey(sh, e.key())
		if sh.Kind == model.Senders {
			m, ok = decodeSender(sh, e.key(), e.last[:e.lastSize])
		}
		if !ok || e.odd || e.end || (e.lastSize != 0) != (sh.Kind == model.Senders) || !sh.carries(e.verdict) {
			return nil, false
		}
		out[m] = e.verdict
	}
	return out, true
}

// carries reports whether the members of the shape have such verdicts.
func (sh Shape) carries(verdict tables.Action) bool {
	_, number := verdict.(tables.Number)
	return (verdict != nil) == (sh.Verdicts || sh.Numbers) && number == sh.Numbers
}

// decodeGrant returns the member for a grant.
func decodeGrant(sh Shape, k []byte) (model.Member, bool) {
	if uint32(len(k)) != sh.kernelType().keyLength {
		return model.Member{}, false
	}
	g := model.Grant{List: binary.NativeEndian.Uint32(k), Peers: binary.NativeEndian.Uint32(k[4:])}
	if sh.Kind == model.Grants {
		g.Protocol, g.Port = model.Protocol(k[8]), binary.BigEndian.Uint16(k[12:])
	}
	return g.Member(), true
}

func decodeKey(sh Shape, k []byte) (model.Member, bool) {
	if sh.Kind.Grants() {
		return decodeGrant(sh, k)
	}
	size := expression.AddressSize(sh.Family)
	if sh.Kind == model.AddressPorts {
		if len(k) != size+8 {
			return model.Member{}, false
		}
		m := model.AddressMember(addressOf(k[:size]))
		m.Protocol, m.Port = model.Protocol(k[size]), binary.BigEndian.Uint16(k[size+4:])
		return m, true
	}
	if sh.Kind == model.Loops && len(k) == 2*size && bytes.Equal(k[:size], k[size:]) {
		k = k[:size]
	} else if sh.Kind == model.Loops || len(k) != size {
		return model.Member{}, false
	}
	return model.AddressMember(addressOf(k)), true
}

// decodeSender returns the member for a range of concatenations: one MAC address, and the addresses of a
// prefix.
func decodeSender(sh Shape, first, last []byte) (m model.Member, ok bool) {
	size := macSize + expression.AddressSize(sh.Family)
	if len(first) != size || len(last) != size || !bytes.Equal(first[:macSize], last[:macSize]) {
		return m, false
	}
	m.Prefix, ok = netipx.IPRangeFrom(addressOf(first[macSize:]), addressOf(last[macSize:])).Prefix()
	m.MAC = model.MAC(first[:len(m.MAC)])
	return m, ok && m.MAC != (model.MAC{})
}

// decodeIntervals pairs boundaries to prefixes and ranges.
func decodeIntervals(sh Shape, elements []element) (map[model.Member]tables.Action, bool) {
	order := make([]*element, len(elements))
	for i := range elements {
		order[i] = &elements[i]
	}
	slices.SortFunc(order, func(a, b *element) int {
		if c := bytes.Compare(a.key(), b.key()); c != 0 {
			return c
		}
		return cmp.Compare(endFirst(a), endFirst(b))
	})
	out := make(map[model.Member]tables.Action, len(elements)/2)
	var start netip.Addr
	var value tables.Action
	for _, e := range order {
		if e.odd || e.lastSize != 0 || e.size != expression.AddressSize(sh.Family) || e.end != start.IsValid() || !e.end && !sh.carries(e.verdict) {
			return nil, false
		}
		a := addressOf(e.key())
		if !e.end {
			start, value = a, e.verdict
			continue
		}
		r := netipx.IPRangeFrom(start, a.Prev())
		if !r.IsValid() {
			return nil, false
		}
		out[model.RangeMember(r)] = value
		start = netip.Addr{}
	}
	if start.IsValid() {
		last := netipx.PrefixLastIP(netip.PrefixFrom(start, 0))
		out[model.RangeMember(netipx.IPRangeFrom(start, last))] = value
	}
	return out, true
}

// endFirst orders the end of an interval before the start of the next one at
// the same address.
func endFirst(e *element) int {
	if e.end {
		return 0
	}
	return 1
}

// addressOf returns the address of 4 or 16 bytes in network order.
func addressOf(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}

// verdictAction returns the action of a kernel's verdict, or nil for a foreign one.
func verdictAction(kind int32, chain string) tables.Action {
	switch expr.VerdictKind(kind) {
	case expr.VerdictAccept:
		return tables.Accept{}
	case expr.VerdictDrop:
		return tables.Drop{}
	case expr.VerdictReturn:
		return tables.Return{}
	case expr.VerdictJump:
		return tables.Jump{Chain: chain}
	case expr.VerdictGoto:
		return tables.Goto{Chain: chain}
	}
	return nil
}
