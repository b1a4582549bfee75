package foreign

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
)

// family is a family of tables.
type family struct {
	number byte
	name   string
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

// noTables reports that an error is the refusal of a kernel without nf_tables, or without a family: there are no chains. nfnetlink says EINVAL if
// nobody has registered the subsystem.
func noTables(err error) bool {
	var code refusal
	return errors.As(err, &code) && slices.Contains([]unix.Errno{unix.EINVAL, unix.ENOENT, unix.EOPNOTSUPP, unix.EAFNOSUPPORT}, unix.Errno(code))
}

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

// ruleset is the rules of one table. Chains and sets are read when a packet comes to them.
type ruleset struct {
	conn   *nfnetlink.Conn
	family family
	table  string
	rules  map[string][][]expression
	// does is the first thing that a rule may do with a packet but to let it pass or to drop it; empty if none does.
	does string
	// own is how our chains in the table are named; empty if there are none. ownEnds are the ends of a packet in them.
	own     string
	ownEnds outcomes
	// marked says that a rule before may have set the packet's mark.
	marked bool
	// sets are those that were looked up. err has the errors of reads.
	sets map[string][]element
	err  error
}

func newRuleset(c *nfnetlink.Conn, f family, table string) *ruleset {
	return &ruleset{conn: c, family: f, table: table, rules: map[string][][]expression{}, sets: map[string][]element{}}
}

// chain returns the rules of a chain.
func (r *ruleset) chain(name string) [][]expression {
	if all, ok := r.rules[name]; ok {
		return all
	}
	r.rules[name] = nil
	err := dump(r.conn, r.family, unix.NFT_MSG_GETRULE, []string{r.table, name}, func(attributes []byte) {
		var rule []expression
		for _, part := range nfnetlink.Attributes(attribute(attributes, unix.NFTA_RULE_EXPRESSIONS)) {
			rule = append(rule, expression{
				name: nfnetlink.Text(attribute(part, unix.NFTA_EXPR_NAME)),
				data: slices.Clone(attribute(part, unix.NFTA_EXPR_DATA)),
			})
		}
		// A kernel that does not filter by chain sends those of the whole table.
		if nfnetlink.Text(attribute(attributes, unix.NFTA_RULE_CHAIN)) == name {
			r.rules[name] = append(r.rules[name], rule)
		}
	})
	if err != nil {
		r.err = errors.Join(r.err, fmt.Errorf("read the rules of chain %s of table %s %s: %w", name, r.family.name, r.table, err))
	}
	return r.rules[name]
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
