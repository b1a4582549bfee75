package nftables

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// kernelState is our table as the kernel holds it.
type kernelState struct {
	exists, dormant bool

	chains map[string]*kernelChain
	sets   map[string]*kernelSet
	others []other
}

// kernelSet is a set as the kernel holds it. The members are known only if
// the set has a shape of ours and regular elements.
type kernelSet struct {
	shape   shape
	regular bool
	members map[model.Member]tables.Action
}

// read reads the whole table, and nothing but that table.
func (c *conn) read(table string) (*kernelState, error) {
	return c.readWith(table, func(chains map[string]*kernelChain) error {
		return c.dumpRules(table, chains, func(filter []netlink.Attribute, _ string) error {
			return c.readRules(filter, chains)
		})
	})
}

// readWith reads the whole table, its rules with the function. It begins anew if
// the table goes meanwhile.
func (c *conn) readWith(table string, readRules func(map[string]*kernelChain) error) (*kernelState, error) {
	for range readAttempts {
		if state, err := c.readOnce(table, readRules); !errors.Is(err, unix.ENOENT) {
			return state, err
		}
	}
	return nil, errInterrupted
}

func (c *conn) readOnce(table string, readRules func(map[string]*kernelChain) error) (*kernelState, error) {
	state, err := c.readTable(table)
	if err != nil || !state.exists {
		return state, err
	}
	if state.chains, err = c.readChains(table); err != nil {
		return nil, fmt.Errorf("read chains of inet %s: %w", table, err)
	}
	if err := readRules(state.chains); err != nil {
		return nil, fmt.Errorf("read rules of inet %s: %w", table, err)
	}
	if state.sets, err = c.readSets(table); err != nil {
		return nil, fmt.Errorf("read sets of inet %s: %w", table, err)
	}
	for name, s := range state.sets {
		err := c.readMembers(table, name, s)
		if errors.Is(err, unix.ENOENT) { // gone meanwhile
			delete(state.sets, name)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read elements of set %s of inet %s: %w", name, table, err)
		}
	}
	state.others, err = c.readOthers(table)
	return state, err
}

func (c *conn) readChains(table string) (map[string]*kernelChain, error) {
	chains := map[string]*kernelChain{}
	err := c.retry(unix.NFT_MSG_GETCHAIN, nil, func() { clear(chains) }, func(b []byte) {
		// The kernel lists the chains of all tables of the family.
		if in, name, chain := decodeChain(b); in == table {
			chains[name] = chain
		}
	})
	return chains, err
}

func decodeChain(b []byte) (table, name string, c *kernelChain) {
	c = &kernelChain{}
	for kind, v := range nfnetlink.Attributes(b) {
		switch kind {
		case unix.NFTA_CHAIN_TABLE:
			table = nfnetlink.Text(v)
		case unix.NFTA_CHAIN_NAME:
			name = nfnetlink.Text(v)
		case unix.NFTA_CHAIN_TYPE:
			c.base.chainType = nfnetlink.Text(v)
		case unix.NFTA_CHAIN_POLICY:
			c.base.policy = nfnetlink.Uint32(v)
		case unix.NFTA_CHAIN_USE:
			c.uses = nfnetlink.Uint32(v)
		case unix.NFTA_CHAIN_HOOK:
			for kind, v := range nfnetlink.Attributes(v) {
				switch kind {
				case unix.NFTA_HOOK_HOOKNUM:
					c.base.hook = nfnetlink.Uint32(v)
				case unix.NFTA_HOOK_PRIORITY:
					c.base.priority = int32(nfnetlink.Uint32(v))
				}
			}
		}
	}
	return table, name, c
}

// wholeDump is the number of rules up to which they are read at once.
//
// The kernel gives a dump in pieces of 32 kB and counts from the first rule on
// for each, so the time grows with the square of the rules: of 20,000 a quarter
// of it goes there, of 55,000 more than half. A dump of one chain costs three
// system calls, some 5 us, and others' changes hardly ever come between.
const wholeDump = 4000

// dumpRules calls dump for filters that together let the rules of all chains
// through: one for all, or one for each named chain.
func (c *conn) dumpRules(table string, chains map[string]*kernelChain, dump func(filter []netlink.Attribute, chain string) error) error {
	uses := 0
	for _, chain := range chains {
		uses += int(chain.uses)
	}
	if uses <= wholeDump {
		return dump(inTable(unix.NFTA_RULE_TABLE, table), "")
	}
	filter := named(unix.NFTA_RULE_TABLE, table, unix.NFTA_RULE_CHAIN, "")
	for name, chain := range chains {
		if chain.uses == 0 {
			continue
		}
		filter[1].Data = append(append(filter[1].Data[:0], name...), 0)
		err := dump(filter, name)
		if errors.Is(err, unix.ENOENT) { // gone meanwhile
			delete(chains, name)
			continue
		}
		if err != nil {
			return fmt.Errorf("of chain %s: %w", name, err)
		}
	}
	return nil
}

// readRules reads the rules that the filter lets through into their chains,
// which have none.
func (c *conn) readRules(filter []netlink.Attribute, chains map[string]*kernelChain) error {
	in := &c.rules
	in.full = in.full[:0]
	err := c.retry(unix.NFT_MSG_GETRULE, filter, in.start, func(b []byte) {
		var r kernelRule
		var comment []byte
		for kind, v := range nfnetlink.Attributes(b) {
			switch kind {
			case unix.NFTA_RULE_CHAIN:
				in.enter(v, chains, c.wanted)
			case unix.NFTA_RULE_HANDLE:
				r.handle = nfnetlink.Uint64(v)
			case unix.NFTA_RULE_EXPRESSIONS:
				r.digest = c.digests.Digest(v)
			case unix.NFTA_RULE_USERDATA:
				comment = commentIn(v)
			}
		}
		r.hash = in.hash(comment)
		in.rules = append(in.rules, r)
	})
	in.leave(chains)
	return err
}

// ruleReader takes the rules of a dump, which come chain by chain.
type ruleReader struct {
	// name is that of the chain of the last rule, and rules are its rules so far.
	name  []byte
	rules []kernelRule
	// hashes are those of the wanted rules of the chain, of which hashes[next] is
	// expected.
	hashes []string
	next   int
	// full are the chains that have got their rules.
	full []*kernelChain
}

// start begins a dump, again if need be.
func (in *ruleReader) start() {
	for _, c := range in.full {
		c.rules = nil
	}
	in.name, in.rules, in.full = in.name[:0], in.rules[:0], in.full[:0]
}

// enter notes that the next rule is one of the named chain.
func (in *ruleReader) enter(name []byte, chains map[string]*kernelChain, wanted map[string]*chain) {
	if bytes.Equal(in.name, name) {
		return
	}
	in.leave(chains)
	in.name = append(in.name, name...)
	if c := wanted[string(nfnetlink.Trimmed(name))]; c != nil {
		in.hashes = c.hashes
	}
}

// leave gives a chain its rules, in as much memory as they take.
func (in *ruleReader) leave(chains map[string]*kernelChain) {
	if c := chains[string(nfnetlink.Trimmed(in.name))]; c != nil {
		c.rules = append(c.rules, in.rules...)
		in.full = append(in.full, c)
	}
	in.name, in.rules, in.hashes, in.next = in.name[:0], in.rules[:0], nil, 0
}

// hash returns the hash in a comment, without new memory if the rule is the one
// that is wanted there.
func (in *ruleReader) hash(comment []byte) string {
	comment, ok := bytes.CutPrefix(comment, []byte(tables.CommentPrefix))
	if !ok {
		return ""
	}
	comment, _, _ = bytes.Cut(comment, []byte(" "))
	for i := in.next; i < min(len(in.hashes), in.next+lookAhead); i++ {
		if in.hashes[i] == string(comment) {
			in.next = i + 1
			return in.hashes[i]
		}
	}
	return string(comment)
}

// lookAhead is how many wanted rules that are missing are looked over.
const lookAhead = 8

// decodeVerdict returns the action a verdict stands for, nil if none of ours.
func decodeVerdict(b []byte) tables.Action {
	var code int32
	var chain string
	for kind, v := range nfnetlink.Attributes(b) {
		switch kind {
		case unix.NFTA_VERDICT_CODE:
			code = int32(nfnetlink.Uint32(v))
		case unix.NFTA_VERDICT_CHAIN:
			chain = nfnetlink.Text(v)
		}
	}
	return verdictAction(code, chain)
}

// commentIn returns the comment in a rule's userdata, or nil. The library's
// reader panics on data that others have written badly, so this one looks for
// itself.
func commentIn(data []byte) []byte {
	for len(data) >= 2 && len(data) >= 2+int(data[1]) {
		kind, v := userdata.Type(data[0]), data[2:2+int(data[1])]
		if kind == userdata.TypeComment {
			return nfnetlink.Trimmed(v)
		}
		data = data[2+len(v):]
	}
	return nil
}

func inTable(kind uint16, table string) []netlink.Attribute {
	return []netlink.Attribute{{Type: kind, Data: nfnetlink.CString(table)}}
}
