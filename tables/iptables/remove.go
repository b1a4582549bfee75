package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
)

// removeAttempts bounds the tries of a removal: changes of other programs may fail one.
const removeAttempts = 5

// Remove deletes all chains with our prefix, in both families, with the rules that lead
// to them, also those that another version has left. It deletes a rule of another
// program too if the rule leads to a chain of ours, since it cannot be without. Sets are
// not touched. The desired state stays recorded: a later Apply programs it again.
func (t *Table) Remove(ctx context.Context) error {
	if err := t.prepare(ctx); err != nil {
		return err
	}
	t.Invalidate()
	t.observed.distrust()
	var errs []error
	for _, f := range t.families {
		errs = append(errs, t.removeFamily(ctx, f))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove from iptables (%s): %w", t.options.Variant, err)
	}
	return nil
}

// Exists reports whether there is a chain with our prefix, in either family.
func (t *Table) Exists(ctx context.Context) (bool, error) {
	if err := t.prepare(ctx); err != nil {
		return false, err
	}
	for _, f := range t.families {
		found, err := t.tools.readShown(ctx, f)
		if errors.Is(err, errIncompatible) {
			return true, nil // it has chains of ours
		}
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
		if found, err = t.tools.readShown(ctx, f); errors.Is(err, errIncompatible) {
			if err = removeHidden(t.options.NetNS, f); err != nil {
				err = fmt.Errorf("remove from tables of IPv%s that iptables cannot show: %w", f, err)
			}
			continue // what is left can be shown, or another program has changed a chain meanwhile
		}
		if err != nil {
			return err
		}
		s := removal(f, found)
		if s.sections == 0 {
			return nil
		}
		if err = t.writer.load(ctx, f, s); err == nil {
			return nil
		}
		var refused *failure
		if !errors.As(err, &refused) {
			return err
		}
	}
	return err
}

// removal returns the script that deletes everything of ours. Each table changes at once,
// one after the other. The table filter is the first: it drops what mangle has not judged.
func removal(f model.Family, found *saved) *script {
	s := newScript()
	filter := placeOf(f, tableFilter)
	for _, p := range append([]place{filter}, slices.DeleteFunc(placesOf(f), func(p place) bool { return p == filter })...) {
		table, section, a := &found.tables[p.table()], newScript(), about{place: p}
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
