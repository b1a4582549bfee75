package nftables

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/tables/nftables/watch"
)

// ask asks for one object and returns its attributes, or nil if the kernel has
// none such.
func (c *conn) ask(message uint16, attributes []netlink.Attribute) ([]byte, error) {
	b, err := netlink.MarshalAttributes(attributes)
	if err != nil {
		return nil, err
	}
	replies, err := c.raw.Execute(watch.Request(message, netlink.Request, unix.NFPROTO_INET, b))
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

// readTable reads what concerns the table itself.
func (c *conn) readTable(table string) (*kernelState, error) {
	state := &kernelState{}
	b, err := c.ask(unix.NFT_MSG_GETTABLE, inTable(unix.NFTA_TABLE_NAME, table))
	if err != nil {
		return nil, fmt.Errorf("read table inet %s: %w", table, err)
	}
	state.exists = b != nil
	for kind, v := range nfnetlink.Attributes(b) {
		if kind == unix.NFTA_TABLE_FLAGS {
			state.dormant = nfnetlink.Uint32(v)&unix.NFT_TABLE_F_DORMANT != 0
		}
	}
	return state, nil
}

// readChain reads one chain with its rules. It returns nil if there is none.
func (c *conn) readChain(table, name string) (*kernelChain, error) {
	b, err := c.ask(unix.NFT_MSG_GETCHAIN, named(unix.NFTA_CHAIN_TABLE, table, unix.NFTA_CHAIN_NAME, name))
	if err != nil {
		return nil, fmt.Errorf("read chain %s of inet %s: %w", name, table, err)
	}
	if b == nil {
		return nil, nil
	}
	_, _, chain := decodeChain(b)
	filter := named(unix.NFTA_RULE_TABLE, table, unix.NFTA_RULE_CHAIN, name)
	if err := c.readRules(filter, map[string]*kernelChain{name: chain}); err != nil {
		return nil, fmt.Errorf("read rules of chain %s of inet %s: %w", name, table, err)
	}
	return chain, nil
}

// readSet reads one set or map with its elements. It returns nil if there is
// none; what is anonymous belongs to a rule and counts as none.
func (c *conn) readSet(table, name string) (*kernelSet, error) {
	b, err := c.ask(unix.NFT_MSG_GETSET, named(unix.NFTA_SET_TABLE, table, unix.NFTA_SET_NAME, name))
	if err != nil {
		return nil, fmt.Errorf("read set %s of inet %s: %w", name, table, err)
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
		return nil, fmt.Errorf("read elements of set %s of inet %s: %w", name, table, err)
	}
	return s, nil
}

func named(tableKind uint16, table string, nameKind uint16, name string) []netlink.Attribute {
	return append(inTable(tableKind, table), netlink.Attribute{Type: nameKind, Data: nfnetlink.CString(name)})
}

// reread reads what the news are about, and makes that what the kernel holds.
// It reports false if it takes a full read to know.
func (t *Table) reread(heard watch.Changes) (bool, error) {
	if complete, err := t.rereadChains(heard); err != nil || !complete {
		return false, err
	}
	if heard.Others != nil {
		others, err := t.conn.readOthers(t.options.Table)
		if err != nil {
			return false, err
		}
		t.others = others
	}
	return true, t.rereadSets(heard)
}

func (t *Table) rereadChains(heard watch.Changes) (complete bool, err error) {
	for _, name := range slices.Sorted(maps.Keys(heard.Chains)) {
		found, err := t.conn.readChain(t.options.Table, name)
		if err != nil {
			return false, err
		}
		known := t.chains[name]
		if found != nil && (known == nil || known.have == nil) && t.renamed(heard) {
			return false, nil
		}
		t.compareChain(name, found, heard)
		if known == nil && found == nil {
			continue
		}
		t.chain(name).take(found)
		t.touchedChains.add(name)
	}
	return true, nil
}

// renamed reports whether a chain of ours is not there any more though nothing
// was heard of it. Of a chain that gets another name, only the new one is told,
// and whatever led to it leads to it still.
func (t *Table) renamed(heard watch.Changes) bool {
	now, err := t.conn.readChains(t.options.Table)
	if err != nil {
		return true
	}
	for name, c := range t.chains {
		_, told := heard.Chains[name]
		if _, there := now[name]; c.have != nil && !there && !told {
			return true
		}
	}
	return false
}

func (t *Table) rereadSets(heard watch.Changes) error {
	for _, name := range slices.Sorted(maps.Keys(heard.Sets)) {
		found, err := t.conn.readSet(t.options.Table, name)
		if err != nil {
			return err
		}
		if t.sets[name] == nil && found == nil {
			continue
		}
		s := t.set(name)
		t.compareSet(s, found, heard)
		s.adopt(found)
		t.touchedSets.add(name)
	}
	return nil
}
