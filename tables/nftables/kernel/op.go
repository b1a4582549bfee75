package kernel

import (
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/expression"
)

// Op is one operation of a transaction: a kind and an object. It becomes one netlink message.
type Op struct {
	Kind OpKind
	// Name is that of the chain, set or map; of the table it is empty.
	Name string
	// Shape is that of the set or map.
	Shape Shape
	// Hook is that of a base chain to add.
	Hook *tables.Hook
	// Changes are the members that a message about members carries.
	Changes []Change
	// Rule is a rule to add, with its hash; Index is its place in the wanted chain. It
	// goes before the rule with the Handle, or to the end if that is zero. The kernel's
	// echo fills Echo in.
	Rule  *tables.Rule
	Hash  string
	Index int
	Echo  *Rule
	// Handle is also the handle of a rule to delete.
	Handle uint64
	// Other is an object of another kind, to delete.
	Other Other
	// Large is the set of AddLarge, AddElements and DeleteElements, and Elements are those to add or delete.
	Large    *tables.LargeSet
	Elements []Element
}

// OpKind is the kind of an operation.
type OpKind uint8

// The kinds. AddTable also wakes a dormant table; DeleteRule deletes the rule with the
// handle.
const (
	AddTable OpKind = iota + 1
	DeleteTable
	AddSet
	FlushSet
	DeleteSet
	AddMembers
	DeleteMembers
	AddChain
	FlushChain
	DeleteChain
	AddRule
	DeleteRule
	DeleteOther
	AddLarge
	AddElements
	DeleteElements
)

// Weight is the number of objects in the message.
func (o *Op) Weight() int { return max(1, len(o.Changes), len(o.Elements)) }

// About returns the object of the message, without an error.
func (o *Op) About(table string) ObjectError {
	e := ObjectError{ObjectError: tables.ObjectError{Object: "table", Name: table}}
	switch o.Kind {
	case AddTable, DeleteTable:
	case DeleteOther:
		e.Object, e.Name = o.Other.Noun(), o.Other.Name
	case AddChain, FlushChain, DeleteChain, AddRule, DeleteRule:
		e.Object, e.Name, e.Unit = "chain", o.Name, Unit{Kind: ChainUnit, Name: o.Name}
	default:
		e.Object, e.Name, e.Unit = o.Shape.Noun(), o.Name, Unit{Kind: SetUnit, Name: o.Name}
	}
	switch {
	case o.Kind == AddRule:
		e.Rule = tables.RuleName(o.Index, *o.Rule)
	case o.Kind == DeleteRule:
		e.Rule = fmt.Sprintf("rule with handle %d", o.Handle)
	case len(o.Changes) > 1:
		first, last := o.Changes[0].Member, o.Changes[len(o.Changes)-1].Member
		e.Rule = fmt.Sprintf("one of %d members from %s to %s", len(o.Changes), first, last)
		e.Many = o.Shape.Verdicts
	case len(o.Changes) == 1:
		e.Rule = o.Changes[0].String()
		if o.Shape.Verdicts {
			e.Unit = Unit{EntryUnit, o.Name, o.Changes[0].Member}
		}
	}
	return e
}

// narrowed returns the operation without the members that an error at the offset
// of its message is not about.
func (o *Op) narrowed(table string, offset int) *Op {
	if len(o.Changes) < 2 || offset < o.size(table, 0) {
		return o
	}
	i := sort.Search(len(o.Changes), func(i int) bool { return offset < o.size(table, i+1) })
	if i == len(o.Changes) {
		return o
	}
	out := *o
	out.Changes = o.Changes[i : i+1]
	return &out
}

// size returns the length of the message with the first n members.
func (o *Op) size(table string, n int) int {
	var m expression.Message
	part := *o
	part.Changes = o.Changes[:n]
	if part.encode(&m, 0, table, 0, 0, 0) != nil {
		return 0
	}
	return len(m.B)
}

// encode writes the message. id is its number in the transaction.
func (o *Op) encode(m *expression.Message, family uint8, table string, id, sequence uint32, flags uint16) error {
	open := func(kind, more uint16) {
		m.Begin(unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags|more, sequence, family, 0)
		m.Text(unix.NFTA_TABLE_NAME, table) // every kind of message has the table first
	}
	defer m.End()
	switch o.Kind {
	case AddTable:
		open(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE)
		m.Uint32(unix.NFTA_TABLE_FLAGS, 0)
	case DeleteTable:
		open(unix.NFT_MSG_DELTABLE, 0)
	case AddSet:
		open(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE)
		o.encodeSet(m, id)
	case FlushSet:
		open(unix.NFT_MSG_DELSETELEM, 0)
		m.Text(unix.NFTA_SET_ELEM_LIST_SET, o.Name)
	case DeleteSet:
		open(unix.NFT_MSG_DELSET, 0)
		m.Text(unix.NFTA_SET_NAME, o.Name)
	case AddLarge:
		open(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE)
		o.encodeLarge(m, id)
	case AddElements:
		open(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE)
		return o.encodeElements(m)
	case DeleteElements:
		open(unix.NFT_MSG_DELSETELEM, 0)
		return o.encodeElements(m)
	case AddMembers:
		open(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE)
		return o.encodeMembers(m)
	case DeleteMembers:
		open(unix.NFT_MSG_DELSETELEM, 0)
		return o.encodeMembers(m)
	case AddChain:
		open(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE)
		o.encodeChain(m)
	case FlushChain:
		open(unix.NFT_MSG_DELRULE, 0)
		m.Text(unix.NFTA_RULE_CHAIN, o.Name)
	case DeleteChain:
		open(unix.NFT_MSG_DELCHAIN, 0)
		m.Text(unix.NFTA_CHAIN_NAME, o.Name)
	case AddRule:
		// The echo brings the rule's handle, and the rule as the kernel holds it.
		more := uint16(unix.NLM_F_CREATE | unix.NLM_F_ECHO)
		if o.Handle == 0 {
			more |= unix.NLM_F_APPEND
		}
		open(unix.NFT_MSG_NEWRULE, more)
		return o.encodeRule(m)
	case DeleteRule:
		open(unix.NFT_MSG_DELRULE, 0)
		m.Text(unix.NFTA_RULE_CHAIN, o.Name)
		m.Uint64(unix.NFTA_RULE_HANDLE, o.Handle)
	case DeleteOther:
		open(o.Other.message(), 0)
		o.Other.encode(m)
	default:
		open(unix.NFT_MSG_GETGEN, 0)
		return fmt.Errorf("unknown operation %d", o.Kind)
	}
	return nil
}

// encodeSet writes the type of a set.
func (o *Op) encodeSet(m *expression.Message, id uint32) {
	t := o.Shape.kernelType()
	m.Text(unix.NFTA_SET_NAME, o.Name)
	m.Uint32(unix.NFTA_SET_FLAGS, t.flags)
	m.Uint32(unix.NFTA_SET_KEY_TYPE, t.key)
	m.Uint32(unix.NFTA_SET_KEY_LEN, t.keyLength)
	m.Uint32(unix.NFTA_SET_ID, id)
	if o.Shape.Verdicts {
		m.Uint32(unix.NFTA_SET_DATA_TYPE, t.data)
		m.Uint32(unix.NFTA_SET_DATA_LEN, 0)
	}
	if o.Shape.Numbers {
		m.Uint32(unix.NFTA_SET_DATA_TYPE, t.data)
		m.Uint32(unix.NFTA_SET_DATA_LEN, numberSize)
	}
	if o.Shape.Kind == model.Senders {
		writeFields(m, etherSize, uint32(expression.AddressSize(o.Shape.Family)))
	}
	// For nft's listing only: the order of bytes in keys and numbers, as numbers of 4.
	const hostOrder, bigEndian = 1, 2
	orders := binary.NativeEndian.AppendUint32([]byte{byte(userdata.NFTNL_UDATA_SET_KEYBYTEORDER), 4}, bigEndian)
	if o.Shape.Numbers {
		orders = binary.NativeEndian.AppendUint32(append(orders, byte(userdata.NFTNL_UDATA_SET_DATABYTEORDER), 4), hostOrder)
	}
	m.Data(unix.NFTA_SET_USERDATA, orders)
}

// numberSize is the length of a number in bytes.
const numberSize = 4

// The attributes of a description of a concatenation, and the bytes of a MAC address.
const (
	setDescConcat = 2 // NFTA_SET_DESC_CONCAT
	setFieldLen   = 1 // NFTA_SET_FIELD_LEN
	etherSize     = 6
)

// writeFields writes the lengths of the parts of a concatenation, by which the kernel finds ranges of them.
func writeFields(m *expression.Message, lengths ...uint32) {
	description := m.Nest(unix.NFTA_SET_DESC)
	concat := m.Nest(setDescConcat)
	for _, n := range lengths {
		field := m.Nest(unix.NFTA_LIST_ELEM)
		m.Uint32(setFieldLen, n)
		m.Close(field)
	}
	m.Close(concat)
	m.Close(description)
}

// encodeChain writes the name and the hook of a chain.
func (o *Op) encodeChain(m *expression.Message) {
	m.Text(unix.NFTA_CHAIN_NAME, o.Name)
	if o.Hook == nil {
		return
	}
	b := BaseOf(o.Hook)
	at := m.Nest(unix.NFTA_CHAIN_HOOK)
	m.Uint32(unix.NFTA_HOOK_HOOKNUM, b.hook)
	m.Uint32(unix.NFTA_HOOK_PRIORITY, uint32(b.priority))
	m.Close(at)
	m.Uint32(unix.NFTA_CHAIN_POLICY, b.policy)
	m.Text(unix.NFTA_CHAIN_TYPE, b.chainType)
}

// encodeRule writes the rule to add.
func (o *Op) encodeRule(m *expression.Message) error {
	m.Text(unix.NFTA_RULE_CHAIN, o.Name)
	if o.Handle != 0 {
		m.Uint64(unix.NFTA_RULE_POSITION, o.Handle)
	}
	at := m.Nest(unix.NFTA_RULE_EXPRESSIONS)
	err := expression.Encode(m, *o.Rule)
	m.Close(at)
	expression.WriteComment(m, *o.Rule, o.Hash)
	return err
}

// MembersPerMessage bounds the elements of one netlink message, so that it stays below the 64 kB of an
// attribute with names of any length (an entry of an IPv6 map that leads to a chain takes at most 308 bytes).
const MembersPerMessage = 128

// encodeMembers writes the kernel's elements for the members of an op. Those of an interval set are
// boundaries: the first address, and the one behind the last, marked as an end. A prefix or range at the end
// of the address space has no end: everything behind the last boundary belongs to it.
func (o *Op) encodeMembers(m *expression.Message) error {
	m.Text(unix.NFTA_SET_ELEM_LIST_SET, o.Name)
	list := m.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	sh := o.Shape
	for _, c := range o.Changes {
		element := m.Nest(unix.NFTA_LIST_ELEM)
		writeKey(m, unix.NFTA_SET_ELEM_KEY, sh, c.Member)
		if sh.Kind == model.Senders {
			last := c.Member
			last.Prefix = model.AddressMember(c.Member.Range().To()).Prefix
			writeKey(m, setElementKeyEnd, sh, last)
		}
		// The key identifies a deleted element.
		if sh.Verdicts && o.Kind == AddMembers {
			if err := m.VerdictData(unix.NFTA_SET_ELEM_DATA, c.Verdict); err != nil {
				return err
			}
		}
		if n, ok := c.Verdict.(tables.Number); ok && o.Kind == AddMembers {
			m.Value(unix.NFTA_SET_ELEM_DATA, binary.NativeEndian.AppendUint32(nil, uint32(n)))
		}
		m.Close(element)
		if sh.Kind != model.Networks {
			continue
		}
		if end := c.Member.Range().To().Next(); end.IsValid() {
			element := m.Nest(unix.NFTA_LIST_ELEM)
			m.Uint32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
			writeKey(m, unix.NFTA_SET_ELEM_KEY, sh, model.AddressMember(end))
			m.Close(element)
		}
	}
	m.Close(list)
	return nil
}

// writeKey writes the element key of a member. The parts of a concatenation are
// padded to the 4 bytes of a register.
func writeKey(m *expression.Message, attribute uint16, sh Shape, member model.Member) {
	var buffer [keySize]byte
	k := buffer[:0]
	if sh.Kind.Grants() {
		g := member.Grant()
		k = binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(k, g.List), g.Peers)
		if sh.Kind == model.Grants {
			k = append(k, byte(g.Protocol), 0, 0, 0, byte(g.Port>>8), byte(g.Port), 0, 0)
		}
		m.Value(attribute, k)
		return
	}
	if sh.Kind == model.Senders {
		k = append(append(k, member.MAC[:]...), 0, 0)
	}
	k = expression.AppendAddress(k, member.Prefix.Addr())
	if sh.Kind == model.AddressPorts {
		k = append(k, byte(member.Protocol), 0, 0, 0)
		k = append(k, byte(member.Port>>8), byte(member.Port), 0, 0)
	}
	if sh.Kind == model.Loops {
		k = append(k, k...)
	}
	m.Value(attribute, k)
}
