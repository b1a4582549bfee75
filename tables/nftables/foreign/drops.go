package foreign

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
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

// Chain is a chain that drops the packet.
type Chain struct{ Family, Table, Name string }

// Accepting returns the command that lets packets with the mark to the port pass the chain.
func (c Chain) Accepting(p Packet) string {
	return fmt.Sprintf("nft insert rule %s %s %s udp dport %d meta mark and %#x == %#[5]x accept", c.Family, c.Table, c.Name, p.Port, p.Mark)
}

// String returns the name of the chain with its table.
func (c Chain) String() string {
	return fmt.Sprintf("chain %s of table %s %s", c.Name, c.Family, c.Table)
}

// Drops returns the base chains at INPUT that drop the packet for certain. It leaves out tables whose names begin
// with own, and those of iptables. netns is the descriptor of a network namespace; zero is the process's own.
func Drops(netns int, own string, p Packet) (found []Chain, err error) {
	c, err := nfnetlink.Dial(netns)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, f := range []family{{unix.NFPROTO_INET, "inet"}, {unix.NFPROTO_IPV4, "ip"}} {
		bases, err := f.bases(c, own, p.IPTables)
		if err != nil {
			return nil, err
		}
		for _, b := range bases {
			r := &ruleset{conn: c, family: f, table: b.table}
			if err := r.read(); err != nil {
				return nil, err
			}
			v := r.walk(p, b.name, 0)
			if r.err != nil {
				return nil, r.err
			}
			if v&leaves != 0 {
				v = v&^leaves | b.policy
			}
			if v == drops {
				found = append(found, Chain{Family: f.name, Table: b.table, Name: b.name})
			}
		}
	}
	return found, nil
}

// family is a family of tables.
type family struct {
	number byte
	name   string
}

// base is a base chain at INPUT.
type base struct {
	table, name string
	policy      outcomes
}

// bases returns the base chains of other programs, those of iptables only if they are wanted.
func (f family) bases(c *nfnetlink.Conn, own string, wanted bool) ([]base, error) {
	var all []base
	err := dump(c, f, unix.NFT_MSG_GETCHAIN, nil, func(attributes []byte) {
		b := base{policy: accepts}
		hook := uint32(unix.NF_INET_NUMHOOKS)
		for kind, v := range nfnetlink.Attributes(attributes) {
			switch kind {
			case unix.NFTA_CHAIN_TABLE:
				b.table = nfnetlink.Text(v)
			case unix.NFTA_CHAIN_NAME:
				b.name = nfnetlink.Text(v)
			case unix.NFTA_CHAIN_POLICY:
				if number(v) == verdictDrop {
					b.policy = drops
				}
			case unix.NFTA_CHAIN_HOOK:
				hook = number(attribute(v, unix.NFTA_HOOK_HOOKNUM))
			}
		}
		iptables := !wanted && f.number == unix.NFPROTO_IPV4 && b.name == "INPUT" && slices.Contains([]string{"mangle", "filter", "nat", "security"}, b.table)
		if hook == unix.NF_INET_LOCAL_IN && !strings.HasPrefix(b.table, own) && !iptables {
			all = append(all, b)
		}
	})
	var refused refusal
	if errors.As(err, &refused) {
		return nil, nil // a kernel without nf_tables has no chains
	}
	if err != nil {
		return nil, fmt.Errorf("read the chains of family %s: %w", f.name, err)
	}
	return all, nil
}

// dump asks for objects of a family. Each text is an attribute of the request, numbered from one.
func dump(c *nfnetlink.Conn, f family, kind uint8, texts []string, visit func(attributes []byte)) error {
	var m nfnetlink.Messages
	m.Begin(unix.NFNL_SUBSYS_NFTABLES, kind, unix.NLM_F_DUMP, f.number)
	for i, text := range texts {
		m.Text(uint16(i+1), text)
	}
	m.End()
	code, err := c.Dump(&m, visit)
	if err == nil && code != 0 {
		err = refusal(code)
	}
	return err
}

// refusal is an error of the kernel in its answer.
type refusal unix.Errno

// Error implements error.
func (r refusal) Error() string { return "the kernel refuses: " + unix.Errno(r).Error() }

// attribute returns the value of the first attribute of a kind, or nil.
func attribute(b []byte, kind uint16) []byte {
	for k, v := range nfnetlink.Attributes(b) {
		if k == kind {
			return v
		}
	}
	return nil
}

// number returns a number of four bytes in network order, or zero.
func number(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// expression is one part of a rule.
type expression struct {
	name string
	data []byte
}

// ruleset is the rules of one table, by chain.
type ruleset struct {
	conn   *nfnetlink.Conn
	family family
	table  string
	rules  map[string][][]expression
	// marked says that a rule before may have set the packet's mark.
	marked bool
	// sets are those that were looked up. err is the first error of such a read.
	sets map[string][]element
	err  error
}

// read reads all rules of the table.
func (r *ruleset) read() error {
	r.rules, r.sets = map[string][][]expression{}, map[string][]element{}
	err := dump(r.conn, r.family, unix.NFT_MSG_GETRULE, []string{r.table}, func(attributes []byte) {
		var rule []expression
		for _, part := range nfnetlink.Attributes(attribute(attributes, unix.NFTA_RULE_EXPRESSIONS)) {
			rule = append(rule, expression{
				name: nfnetlink.Text(attribute(part, unix.NFTA_EXPR_NAME)),
				data: slices.Clone(attribute(part, unix.NFTA_EXPR_DATA)),
			})
		}
		chain := nfnetlink.Text(attribute(attributes, unix.NFTA_RULE_CHAIN))
		r.rules[chain] = append(r.rules[chain], rule)
	})
	if err != nil {
		return fmt.Errorf("read the rules of table %s %s: %w", r.family.name, r.table, err)
	}
	return nil
}

// element is one element of a set.
type element struct {
	key, keyEnd []byte
	// end says that an interval ends before the key.
	end     bool
	verdict []byte
}

// set returns the elements of a set.
func (r *ruleset) set(name string) []element {
	if all, ok := r.sets[name]; ok {
		return all
	}
	all := []element{}
	err := dump(r.conn, r.family, unix.NFT_MSG_GETSETELEM, []string{r.table, name}, func(attributes []byte) {
		for _, e := range nfnetlink.Attributes(attribute(attributes, unix.NFTA_SET_ELEM_LIST_ELEMENTS)) {
			all = append(all, element{
				key:     slices.Clone(attribute(attribute(e, unix.NFTA_SET_ELEM_KEY), unix.NFTA_DATA_VALUE)),
				keyEnd:  slices.Clone(attribute(attribute(e, setElemKeyEnd), unix.NFTA_DATA_VALUE)),
				end:     number(attribute(e, unix.NFTA_SET_ELEM_FLAGS))&unix.NFT_SET_ELEM_INTERVAL_END != 0,
				verdict: slices.Clone(attribute(attribute(e, unix.NFTA_SET_ELEM_DATA), unix.NFTA_DATA_VERDICT)),
			})
		}
	})
	var gone refusal
	if errors.As(err, &gone) {
		all = []element{{}} // changed since the rules were read: its elements are not known
	} else if err != nil {
		r.err = errors.Join(r.err, fmt.Errorf("read the set %s of table %s %s: %w", name, r.family.name, r.table, err))
	}
	r.sets[name] = all
	return all
}

// setElemKeyEnd is NFTA_SET_ELEM_KEY_END of linux/netfilter/nf_tables.h.
const setElemKeyEnd = 10
