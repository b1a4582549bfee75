package nftables

import (
	"fmt"
	"sort"

	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/expression"
)

// op is one netlink message to come: what to do with which object. It is
// encoded when it is sent, so a transaction can be tried again in parts.
type op struct {
	kind opKind
	// set or chain is the object; neither means the table.
	set   *set
	chain *chain
	// changes are the members that a message about members carries.
	changes []change
	// index is that of the wanted rule to add. It goes before the rule with
	// the handle, if there is one, and else to the end. The kernel's echo
	// completes rule.
	index  int
	handle uint64
	rule   *kernelRule
	// other is what to delete that is none of the above.
	other other
}

// opKind is what an op does.
type opKind uint8

// The kinds. addTable also wakes a table that is there and dormant;
// deleteRule deletes the rule with the handle.
const (
	addTable opKind = iota + 1
	deleteTable
	addSet
	flushSet
	deleteSet
	addMembers
	deleteMembers
	addChain
	flushChain
	deleteChain
	addRule
	deleteRule
	deleteOther
)

// weight is the number of objects in the message.
func (o *op) weight() int { return max(1, len(o.changes)) }

// about says what the message is about; Err is empty.
func (o *op) about(table string) objectError {
	switch {
	case o.kind == addRule:
		rules, _ := o.chain.goal()
		return o.chain.about(tables.RuleName(o.index, rules[o.index]))
	case o.kind == deleteRule:
		return o.chain.about(fmt.Sprintf("rule with handle %d", o.handle))
	case o.chain != nil:
		return o.chain.about("")
	case len(o.changes) > 1:
		first, last := o.changes[0].member, o.changes[len(o.changes)-1].member
		e := o.set.about(fmt.Sprintf("one of %d members from %s to %s", len(o.changes), first, last))
		e.many = o.set.shape.verdicts
		return e
	case len(o.changes) == 1 && o.set.shape.verdicts:
		return o.set.aboutEntry(o.changes[0])
	case len(o.changes) == 1:
		return o.set.about(o.changes[0].String())
	case o.set != nil:
		return o.set.about("")
	case o.kind == deleteOther:
		return newError(o.other.noun(), o.other.name, "")
	}
	return newError("table", table, "")
}

// narrowed returns the operation without the members that an error at the offset
// of its message is not about.
func (o *op) narrowed(table string, offset int) *op {
	if len(o.changes) < 2 || offset < o.size(table, 0) {
		return o
	}
	i := sort.Search(len(o.changes), func(i int) bool { return offset < o.size(table, i+1) })
	if i == len(o.changes) {
		return o
	}
	out := *o
	out.changes = o.changes[i : i+1]
	return &out
}

// size returns the length of the message with the first n members.
func (o *op) size(table string, n int) int {
	var m expression.Message
	part := *o
	part.changes = o.changes[:n]
	if part.encode(&m, table, 0, 0, 0) != nil {
		return 0
	}
	return len(m.B)
}

// aboutEntry says that something is about one entry of a map.
func (s *set) aboutEntry(c change) objectError {
	e := s.about(c.String())
	_, wanted := s.members.want[c.member]
	e.unit, e.removal = unit{entryUnit, s.name, c.member}, !wanted
	return e
}

// perMessage returns how many members go into one message.
func (s *set) perMessage() int {
	if s.single {
		return 1
	}
	return membersPerMessage
}

// encode writes the message. id is its number in the transaction.
func (o *op) encode(m *expression.Message, table string, id, sequence uint32, flags uint16) error {
	open := func(kind, more uint16) {
		m.Begin(unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags|more, sequence, unix.NFPROTO_INET, 0)
		m.Text(unix.NFTA_TABLE_NAME, table) // every kind of message has the table first
	}
	defer m.End()
	switch o.kind {
	case addTable:
		open(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE)
		m.Uint32(unix.NFTA_TABLE_FLAGS, 0)
	case deleteTable:
		open(unix.NFT_MSG_DELTABLE, 0)
	case addSet:
		open(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE)
		o.set.encode(m, id)
	case flushSet:
		open(unix.NFT_MSG_DELSETELEM, 0)
		m.Text(unix.NFTA_SET_ELEM_LIST_SET, o.set.name)
	case deleteSet:
		open(unix.NFT_MSG_DELSET, 0)
		m.Text(unix.NFTA_SET_NAME, o.set.name)
	case addMembers:
		open(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE)
		return o.encodeMembers(m)
	case deleteMembers:
		open(unix.NFT_MSG_DELSETELEM, 0)
		return o.encodeMembers(m)
	case addChain:
		open(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE)
		o.chain.encode(m)
	case flushChain:
		open(unix.NFT_MSG_DELRULE, 0)
		m.Text(unix.NFTA_RULE_CHAIN, o.chain.name)
	case deleteChain:
		open(unix.NFT_MSG_DELCHAIN, 0)
		m.Text(unix.NFTA_CHAIN_NAME, o.chain.name)
	case addRule:
		// The echo tells the rule's handle, and the rule as the kernel holds it.
		more := uint16(unix.NLM_F_CREATE | unix.NLM_F_ECHO)
		if o.handle == 0 {
			more |= unix.NLM_F_APPEND
		}
		open(unix.NFT_MSG_NEWRULE, more)
		return o.encodeRule(m)
	case deleteRule:
		open(unix.NFT_MSG_DELRULE, 0)
		m.Text(unix.NFTA_RULE_CHAIN, o.chain.name)
		m.Uint64(unix.NFTA_RULE_HANDLE, o.handle)
	case deleteOther:
		open(o.other.message(), 0)
		o.other.encode(m)
	default:
		open(unix.NFT_MSG_GETGEN, 0)
		return fmt.Errorf("unknown operation %d", o.kind)
	}
	return nil
}

// encode writes the type of a set.
func (s *set) encode(m *expression.Message, id uint32) {
	t := s.shape.kernelType()
	m.Text(unix.NFTA_SET_NAME, s.name)
	m.Uint32(unix.NFTA_SET_FLAGS, t.flags)
	m.Uint32(unix.NFTA_SET_KEY_TYPE, t.key)
	m.Uint32(unix.NFTA_SET_KEY_LEN, t.keyLength)
	m.Uint32(unix.NFTA_SET_ID, id)
	if s.shape.verdicts {
		m.Uint32(unix.NFTA_SET_DATA_TYPE, t.data)
		m.Uint32(unix.NFTA_SET_DATA_LEN, 0)
	}
	// For nft's listing only: the order of bytes in keys, as a number of 4.
	const bigEndian = 2
	m.Data(unix.NFTA_SET_USERDATA, []byte{byte(userdata.NFTNL_UDATA_SET_KEYBYTEORDER), 4, bigEndian, 0, 0, 0})
}

// encode writes the name and the hook of a chain as wanted.
func (c *chain) encode(m *expression.Message) {
	m.Text(unix.NFTA_CHAIN_NAME, c.name)
	if c.want.Hook == nil {
		return
	}
	b := base(c.want.Hook)
	at := m.Nest(unix.NFTA_CHAIN_HOOK)
	m.Uint32(unix.NFTA_HOOK_HOOKNUM, b.hook)
	m.Uint32(unix.NFTA_HOOK_PRIORITY, uint32(b.priority))
	m.Close(at)
	m.Uint32(unix.NFTA_CHAIN_POLICY, b.policy)
	m.Text(unix.NFTA_CHAIN_TYPE, b.chainType)
}

// encodeRule writes the wanted rule at the op's index.
func (o *op) encodeRule(m *expression.Message) error {
	rules, hashes := o.chain.goal()
	r := rules[o.index]
	m.Text(unix.NFTA_RULE_CHAIN, o.chain.name)
	if o.handle != 0 {
		m.Uint64(unix.NFTA_RULE_POSITION, o.handle)
	}
	at := m.Nest(unix.NFTA_RULE_EXPRESSIONS)
	err := expression.Encode(m, r)
	m.Close(at)
	expression.WriteComment(m, r, hashes[o.index])
	return err
}
