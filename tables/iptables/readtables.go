package iptables

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/model"
)

// read reads all tables of a family: those that the tool cannot show by netlink.
func (t *tools) read(ctx context.Context, f model.Family) (*saved, error) {
	out, err := t.dump(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("read the tables of IPv%s: %w", f, err)
	}
	s := parseSaved(string(out))
	if len(s.hidden) == 0 {
		return s, nil
	}
	if err := t.readHidden(f, s); err != nil {
		return nil, fmt.Errorf("read the tables of IPv%s that iptables cannot show: %w", f, err)
	}
	return s, nil
}

// readShown reads the tables of a family. Unlike read it leaves out tables that the tool
// cannot show and that have no chain of ours: there is nothing to remove in them.
func (t *tools) readShown(ctx context.Context, f model.Family) (*saved, error) {
	out, err := t.dump(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("read the tables of IPv%s: %w", f, err)
	}
	s := parseSaved(string(out))
	if len(s.hidden) == 0 {
		return s, nil
	}
	ours, err := tablesWithOurs(t.netns, f)
	if err != nil {
		return nil, fmt.Errorf("read the chains of IPv%s: %w", f, err)
	}
	for _, k := range s.hidden {
		if ours[k.String()] {
			return nil, fmt.Errorf("read the tables of IPv%s: %w", f, k.incompatible())
		}
	}
	return s, nil
}

// tablesWithOurs asks nf_tables which tables of a family have chains of ours.
func tablesWithOurs(netns int, f model.Family) (found map[string]bool, err error) {
	c, err := nfnetlink.Dial(netns)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	found = map[string]bool{}
	var m nfnetlink.Messages
	m.Begin(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, nfFamily(f))
	m.End()
	code, err := c.Dump(&m, func(attributes []byte) {
		table, ours := "", false
		for kind, v := range nfnetlink.Attributes(attributes) {
			switch kind {
			case unix.NFTA_CHAIN_TABLE:
				table = strings.TrimRight(string(v), "\x00")
			case unix.NFTA_CHAIN_NAME:
				ours = strings.HasPrefix(string(v), Prefix)
			}
		}
		if ours {
			found[table] = true
		}
	})
	if err == nil && code != 0 {
		err = code
	}
	return found, err
}
