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

// removeAttempts is how often a removal is tried that others' changes may have
// upset.
const removeAttempts = 5

// Remove deletes all chains of ours, in both families, with the rules that lead
// to them: whatever begins with the prefix, also what another version has left.
// A rule that somebody else has written goes too if it leads to a chain of
// ours, since it cannot be without. Sets are not touched. What is wanted stays
// recorded: a later Apply programs it again.
func (t *Table) Remove(ctx context.Context) error {
	if err := t.prepare(ctx); err != nil {
		return err
	}
	t.Invalidate()
	for _, s := range t.state {
		s.trusted = false
	}
	var errs []error
	for _, f := range t.families {
		errs = append(errs, t.removeFamily(ctx, f))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove from iptables (%s): %w", t.options.Variant, err)
	}
	return nil
}

// Exists reports whether there is a chain of ours, in either family, whoever
// made it.
func (t *Table) Exists(ctx context.Context) (bool, error) {
	if err := t.prepare(ctx); err != nil {
		return false, err
	}
	for _, f := range t.families {
		found, err := t.shown(ctx, f)
		if err != nil {
			return false, fmt.Errorf("look into iptables (%s): %w", t.options.Variant, err)
		}
		if removal(f, found).sections > 0 {
			return true, nil
		}
	}
	return false, nil
}

func (t *Table) removeFamily(ctx context.Context, f model.Family) error {
	var err error
	for range removeAttempts {
		var found *saved
		if found, err = t.shown(ctx, f); err != nil {
			return err
		}
		s := removal(f, found)
		if s.sections == 0 {
			return nil
		}
		if err = t.load(ctx, f, s); err == nil {
			return nil
		}
		var refused *failure
		if !errors.As(err, &refused) {
			return err
		}
	}
	return err
}

// shown reads the tables of a family like read, but for those that cannot be
// shown and have no chain of ours: nothing in them is ours to remove.
func (t *Table) shown(ctx context.Context, f model.Family) (*saved, error) {
	out, err := t.tools.dump(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("read the tables of IPv%s: %w", f, err)
	}
	s := parseShown(string(out))
	if len(s.hidden) == 0 {
		return s, nil
	}
	ours, err := tablesWithOurs(t.options.NetNS, f)
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
	family := byte(unix.NFPROTO_IPV4)
	if f == model.IPv6 {
		family = unix.NFPROTO_IPV6
	}
	found = map[string]bool{}
	var m nfnetlink.Messages
	m.Begin(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, family)
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

// removal is the script that deletes all that was found of ours.
func removal(f model.Family, found *saved) *script {
	s := &script{}
	for _, p := range placesOf(f) {
		table, section, a := &found.tables[p.table()], &script{}, about{place: p}
		for _, chain := range sorted(table.entries) {
			for _, text := range table.entries[chain].texts {
				section.command(a, "-D %s %s", chain, text)
			}
		}
		for _, r := range table.strange {
			if table.chains[strings.TrimPrefix(targetOf(r.text), Prefix)] != nil {
				section.command(a, "-D %s %s", r.chain, r.text)
			}
		}
		for _, command := range []string{"-F", "-X"} {
			for _, name := range sorted(table.chains) {
				section.command(a, "%s %s", command, KernelName(name))
			}
		}
		s.join(section, p)
	}
	return s
}
