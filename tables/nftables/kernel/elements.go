package kernel

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/google/nftables/expr"
	"go4.org/netipx"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/expression"
)

// MembersPerMessage bounds the elements of one netlink message, so that it
// stays below the 64 kB that an attribute can have whatever the names are
// (an entry of an IPv6 map that leads to a chain takes at most 308 bytes).
const MembersPerMessage = 128

// encodeMembers writes the kernel's elements for the members of an op. Those of
// an interval set are boundaries: the first address, and marked as an end the
// one behind the last. A prefix or range that touches the end of the address space has
// no end; what lies behind the last boundary belongs to it.
func (o *Op) encodeMembers(m *expression.Message) error {
	m.Text(unix.NFTA_SET_ELEM_LIST_SET, o.Name)
	list := m.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	sh := o.Shape
	for _, c := range o.Changes {
		element := m.Nest(unix.NFTA_LIST_ELEM)
		writeKey(m, sh, c.Member)
		// What is deleted is known by its key.
		if sh.Verdicts && o.Kind == AddMembers {
			if err := m.VerdictData(unix.NFTA_SET_ELEM_DATA, c.Verdict); err != nil {
				return err
			}
		}
		m.Close(element)
		if sh.Kind != model.Networks {
			continue
		}
		if end := c.Member.Range().To().Next(); end.IsValid() {
			element := m.Nest(unix.NFTA_LIST_ELEM)
			m.Uint32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
			writeKey(m, sh, model.AddressMember(end))
			m.Close(element)
		}
	}
	m.Close(list)
	return nil
}

// writeKey writes the element key of a member. The parts of a concatenation are
// padded to the 4 bytes of a register.
func writeKey(m *expression.Message, sh Shape, member model.Member) {
	var buffer [keySize]byte
	k := expression.AppendAddress(buffer[:0], member.Prefix.Addr())
	if sh.Kind == model.AddressPorts {
		k = append(k, byte(member.Protocol), 0, 0, 0)
		k = append(k, byte(member.Port>>8), byte(member.Port), 0, 0)
	}
	if sh.Kind == model.Loops {
		k = append(k, k...)
	}
	m.Value(unix.NFTA_SET_ELEM_KEY, k)
}

// element is an element as the kernel holds it.
type element struct {
	// The key is the first size bytes of buffer, which takes the longest of ours.
	buffer  [keySize]byte
	size    int
	end     bool // of an interval
	verdict tables.Action
	// odd tells that it has something that ours never have.
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
		if !ok || e.odd || e.end || (e.verdict != nil) != sh.Verdicts {
			return nil, false
		}
		out[m] = e.verdict
	}
	return out, true
}

func decodeKey(sh Shape, k []byte) (model.Member, bool) {
	size := expression.AddressSize(sh.Family)
	if sh.Kind == model.AddressPorts {
		if len(k) != size+8 {
			return model.Member{}, false
		}
		m := model.AddressMember(AddressOf(k[:size]))
		m.Protocol, m.Port = model.Protocol(k[size]), binary.BigEndian.Uint16(k[size+4:])
		return m, true
	}
	if sh.Kind == model.Loops && len(k) == 2*size && bytes.Equal(k[:size], k[size:]) {
		k = k[:size]
	} else if sh.Kind == model.Loops || len(k) != size {
		return model.Member{}, false
	}
	return model.AddressMember(AddressOf(k)), true
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
	for _, e := range order {
		if e.odd || e.size != expression.AddressSize(sh.Family) || e.end != start.IsValid() {
			return nil, false
		}
		a := AddressOf(e.key())
		if !e.end {
			start = a
			continue
		}
		r := netipx.IPRangeFrom(start, a.Prev())
		if !r.IsValid() {
			return nil, false
		}
		out[model.RangeMember(r)] = nil
		start = netip.Addr{}
	}
	if start.IsValid() {
		last := netipx.PrefixLastIP(netip.PrefixFrom(start, 0))
		out[model.RangeMember(netipx.IPRangeFrom(start, last))] = nil
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

// AddressOf returns the address of 4 or 16 bytes in network order.
func AddressOf(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}

// verdictAction returns the action for a verdict of the kernel, or nil if it
// is none of ours.
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
