package iptables

import (
	"context"
	"errors"
	"fmt"
	"strings"

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

func (t *Table) removeFamily(ctx context.Context, f model.Family) error {
	var err error
	for range removeAttempts {
		var found *saved
		if found, err = t.read(ctx, f); err != nil {
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
