package kernel

import (
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/tables/nftables/watch"
)

// Read reads the whole table, and nothing but that table.
func (c *Conn) Read(table string) (*State, error) {
	return c.ReadWith(table, func(chains map[string]*Chain) error {
		return dumpRules(table, chains, func(filter []netlink.Attribute, _ string) error {
			return c.readRules(filter, chains)
		})
	})
}

// ReadWith reads the whole table, its rules with the function. It begins anew if
// the table goes meanwhile.
func (c *Conn) ReadWith(table string, readRules func(map[string]*Chain) error) (*State, error) {
	for range readAttempts {
		if state, err := c.readOnce(table, readRules); !errors.Is(err, unix.ENOENT) {
			return state, err
		}
	}
	return nil, errInterrupted
}

func (c *Conn) readOnce(table string, readRules func(map[string]*Chain) error) (*State, error) {
	state, err := c.ReadTable(table)
	if err != nil || !state.Exists {
		return state, err
	}
	if state.Chains, err = c.ReadChains(table); err != nil {
		return nil, fmt.Errorf("read chains of %s %s: %w", FamilyName(c.family), table, err)
	}
	if err := readRules(state.Chains); err != nil {
		return nil, fmt.Errorf("read rules of %s %s: %w", FamilyName(c.family), table, err)
	}
	if state.Sets, err = c.readSets(table); err != nil {
		return nil, fmt.Errorf("read sets of %s %s: %w", FamilyName(c.family), table, err)
	}
	for name, s := range state.Sets {
		err := c.readMembers(table, name, s)
		if errors.Is(err, unix.ENOENT) { // gone meanwhile
			delete(state.Sets, name)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read elements of set %s of %s %s: %w", name, FamilyName(c.family), table, err)
		}
	}
	state.Others, err = c.ReadOthers(table)
	return state, err
}

// ReadChains reads the chains of the table, by name, without their rules.
func (c *Conn) ReadChains(table string) (map[string]*Chain, error) {
	chains := map[string]*Chain{}
	err := c.dump(unix.NFT_MSG_GETCHAIN, nil, func() { clear(chains) }, func(b []byte) {
		// The kernel lists the chains of all tables of the family.
		if in, name, chain := decodeChain(b); in == table {
			chains[name] = chain
		}
	})
	return chains, err
}

func decodeChain(b []byte) (table, name string, c *Chain) {
	c = &Chain{}
	for kind, v := range nfnetlink.Attributes(b) {
		switch kind {
		case unix.NFTA_CHAIN_TABLE:
			table = nfnetlink.Text(v)
		case unix.NFTA_CHAIN_NAME:
			name = nfnetlink.Text(v)
		case unix.NFTA_CHAIN_TYPE:
			c.Base.chainType = nfnetlink.Text(v)
		case unix.NFTA_CHAIN_POLICY:
			c.Base.policy = nfnetlink.Uint32(v)
		case unix.NFTA_CHAIN_USE:
			c.uses = nfnetlink.Uint32(v)
		case unix.NFTA_CHAIN_HOOK:
			for kind, v := range nfnetlink.Attributes(v) {
				switch kind {
				case unix.NFTA_HOOK_HOOKNUM:
					c.Base.hook = nfnetlink.Uint32(v)
				case unix.NFTA_HOOK_PRIORITY:
					c.Base.priority = int32(nfnetlink.Uint32(v))
				}
			}
		}
	}
	return table, name, c
}

// wholeDump is the number of rules up to which they are read at once.
//
// The kernel sends a dump in pieces of 32 kB, and for each piece counts from the first
// rule. So the time grows with the square of the number of rules: with 20,000 rules this
// counting is a quarter of the time, with 55,000 more than half. A dump of one chain takes
// three system calls (some 5 us), and is rarely interrupted by a change of others.
const wholeDump = 4000

// dumpRules calls dump for filters that together let the rules of all chains
// through: one for all, or one for each named chain.
func dumpRules(table string, chains map[string]*Chain, dump func(filter []netlink.Attribute, chain string) error) error {
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
func (c *Conn) readRules(filter []netlink.Attribute, chains map[string]*Chain) error {
	in := &c.rules
	in.full = in.full[:0]
	err := c.dump(unix.NFT_MSG_GETRULE, filter, in.start, func(b []byte) {
		var r Rule
		var comment []byte
		for kind, v := range nfnetlink.Attributes(b) {
			switch kind {
			case unix.NFTA_RULE_CHAIN:
				in.enter(v, chains, c.Wanted)
			case unix.NFTA_RULE_HANDLE:
				r.Handle = nfnetlink.Uint64(v)
			case unix.NFTA_RULE_EXPRESSIONS:
				r.Digest = c.digests.Digest(v)
			case unix.NFTA_RULE_USERDATA:
				comment = CommentIn(v)
			}
		}
		r.Hash = in.hash(comment)
		in.rules = append(in.rules, r)
	})
	in.leave(chains)
	return err
}

// ask asks for one object and returns its attributes, or nil if the kernel has
// none such.
func (c *Conn) ask(message uint16, attributes []netlink.Attribute) ([]byte, error) {
	b, err := netlink.MarshalAttributes(attributes)
	if err != nil {
		return nil, err
	}
	replies, err := c.raw.Execute(watch.Request(message, netlink.Request, c.family, b))
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, err
	case len(replies) != 1 || len(replies[0].Data) < watch.HeaderSize:
		return nil, fmt.Errorf("%d replies to a question about one object", len(replies))
	}
	return replies[0].Data[watch.HeaderSize:], nil
}

// ReadTable reads the properties of the table itself.
func (c *Conn) ReadTable(table string) (*State, error) {
	state := &State{}
	b, err := c.ask(unix.NFT_MSG_GETTABLE, inTable(unix.NFTA_TABLE_NAME, table))
	if err != nil {
		return nil, fmt.Errorf("read table %s %s: %w", FamilyName(c.family), table, err)
	}
	state.Exists = b != nil
	for kind, v := range nfnetlink.Attributes(b) {
		if kind == unix.NFTA_TABLE_FLAGS {
			state.Dormant = nfnetlink.Uint32(v)&unix.NFT_TABLE_F_DORMANT != 0
		}
	}
	return state, nil
}

// ReadChain reads one chain with its rules. It returns nil if the chain does not exist.
func (c *Conn) ReadChain(table, name string) (*Chain, error) {
	b, err := c.ask(unix.NFT_MSG_GETCHAIN, named(unix.NFTA_CHAIN_TABLE, table, unix.NFTA_CHAIN_NAME, name))
	if err != nil {
		return nil, fmt.Errorf("read chain %s of %s %s: %w", name, FamilyName(c.family), table, err)
	}
	if b == nil {
		return nil, nil
	}
	_, _, chain := decodeChain(b)
	filter := named(unix.NFTA_RULE_TABLE, table, unix.NFTA_RULE_CHAIN, name)
	if err := c.readRules(filter, map[string]*Chain{name: chain}); err != nil {
		return nil, fmt.Errorf("read rules of chain %s of %s %s: %w", name, FamilyName(c.family), table, err)
	}
	return chain, nil
}

// ReadSet reads one set or map with its elements. It returns nil for a missing set, and for an anonymous one,
// which belongs to a rule.
func (c *Conn) ReadSet(table, name string) (*Set, error) {
	b, err := c.ask(unix.NFT_MSG_GETSET, named(unix.NFTA_SET_TABLE, table, unix.NFTA_SET_NAME, name))
	if err != nil {
		return nil, fmt.Errorf("read set %s of %s %s: %w", name, FamilyName(c.family), table, err)
	}
	if b == nil {
		return nil, nil
	}
	_, s, anonymous := decodeSet(b)
	if anonymous {
		return nil, nil
	}
	err = c.readMembers(table, name, s)
	switch {
	case errors.Is(err, unix.ENOENT): // gone meanwhile
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read elements of set %s of %s %s: %w", name, FamilyName(c.family), table, err)
	}
	return s, nil
}
