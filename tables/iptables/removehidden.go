package iptables

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// removeHidden deletes all chains with our prefix in the tables of the nft variant, with the rules that lead to them, by netlink. It is for
// tables that iptables cannot show, because another program has written to them with nft. It is one transaction a table, and touches no other
// rule.
func removeHidden(netns int, f model.Family) (err error) {
	family := nfFamily(f)
	c, err := nfnetlink.Dial(netns)
	if err != nil {
		return fmt.Errorf("connect to nftables: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	rules, chains := map[string][]kernel.Op{}, map[string][]kernel.Op{}
	err = dumpHidden(c, unix.NFT_MSG_GETRULE, family, func(b []byte) {
		table, chain := nfnetlink.Text(nested(b, unix.NFTA_RULE_TABLE)), nfnetlink.Text(nested(b, unix.NFTA_RULE_CHAIN))
		if target, _ := partsOf(b); strings.HasPrefix(target, Prefix) && !strings.HasPrefix(chain, Prefix) {
			rules[table] = append(rules[table], kernel.Op{Kind: kernel.DeleteRule, Name: chain, Handle: nfnetlink.Uint64(nested(b, unix.NFTA_RULE_HANDLE))})
		}
	})
	if err != nil {
		return fmt.Errorf("list the rules: %w", err)
	}
	err = dumpHidden(c, unix.NFT_MSG_GETCHAIN, family, func(b []byte) {
		table, chain := nfnetlink.Text(nested(b, unix.NFTA_CHAIN_TABLE)), nfnetlink.Text(nested(b, unix.NFTA_CHAIN_NAME))
		if strings.HasPrefix(chain, Prefix) {
			chains[table] = append(chains[table], kernel.Op{Kind: kernel.FlushChain, Name: chain})
		}
	})
	if err != nil {
		return fmt.Errorf("list the chains: %w", err)
	}
	var errs []error
	for _, table := range slices.Sorted(maps.Keys(chains)) {
		if _, known := parseKernelTable(table); !known {
			continue
		}
		ops := slices.Concat(rules[table], chains[table])
		for _, flush := range chains[table] {
			ops = append(ops, kernel.Op{Kind: kernel.DeleteChain, Name: flush.Name})
		}
		if err := commitHidden(netns, f, table, ops); err != nil {
			errs = append(errs, fmt.Errorf("delete the chains of table %s: %w", table, err))
		}
	}
	return errors.Join(errs...)
}

// commitHidden carries out a transaction on a table by netlink.
func commitHidden(netns int, f model.Family, table string, ops []kernel.Op) error {
	c, err := kernel.Dial(kernel.Options{NetNS: netns, Family: nfFamily(f), Table: table})
	if err != nil {
		return fmt.Errorf("connect to nftables: %w", err)
	}
	return errors.Join(c.Commit(ops), c.Close())
}

// dumpHidden visits all objects of a kind and a family.
func dumpHidden(c *nfnetlink.Conn, kind, family byte, visit func(attributes []byte)) error {
	var m nfnetlink.Messages
	m.Begin(unix.NFNL_SUBSYS_NFTABLES, kind, unix.NLM_F_DUMP, family)
	m.End()
	code, err := c.Dump(&m, visit)
	if err == nil && code != 0 {
		err = code
	}
	return err
}

// nested returns the first attribute at a path of kinds, or nil.
func nested(b []byte, path ...uint16) []byte {
	for _, want := range path {
		var found []byte
		for kind, v := range nfnetlink.Attributes(b) {
			if kind == want {
				found = v
				break
			}
		}
		b = found
	}
	return b
}
