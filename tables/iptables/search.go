package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/felixlike/felixlike/tables"
)

// faultFinder finds the chains that the kernel refuses if the tool names none.
type faultFinder struct {
	*observed
	quarantine *quarantine
	table      programmer
}

// programmer programs all chains that the quarantine does not hold.
type programmer interface {
	attempt(ctx context.Context, result *tables.Result) error
}

// search quarantines the chains that the kernel refuses. It holds all chains of the
// failed write, unchanged or closed, and admits them again by halves. An accepted half
// stays admitted, a refused one is halved again until one chain is left.
func (s *faultFinder) search(ctx context.Context, f *failure, result *tables.Result) error {
	names := s.chainsToWrite()
	s.quarantine.hold(names)
	defer s.quarantine.endSearch()
	if err := s.table.attempt(ctx, result); err != nil {
		// It is none of them.
		return err
	}
	found := 0
	if err := s.halve(ctx, names, result, &found); err != nil {
		return err
	}
	if found == 0 {
		return fmt.Errorf("iptables-restore refuses the batch but accepts each half: no single chain is at fault: %w", f)
	}
	return nil
}

// chainsToWrite returns the regular chains of the writes, of both families. A refused chain of
// the other family would else fail every try here, and the search would find nothing.
func (s *faultFinder) chainsToWrite() []string {
	var names []string
	seen := map[string]bool{}
	for p := range places {
		if !slices.Contains(s.families, p.family()) {
			continue
		}
		for _, name := range s.candidates(p.family()) {
			c := s.chains[name]
			if c == nil || c.desired == nil || c.desired.Hook != nil || !c.places.has(p) || s.quarantine.closedBy[name] != nil || seen[name] {
				continue
			}
			if c.observed[p] == nil || !slices.Equal(c.observed[p].hashes, s.quarantine.content(c, p).hashes) {
				names, seen[name] = append(names, name), true
			}
		}
	}
	return names
}

// halve admits the chains, or finds those that the kernel refuses.
func (s *faultFinder) halve(ctx context.Context, names []string, result *tables.Result, found *int) error {
	s.quarantine.admit(names)
	err := s.table.attempt(ctx, result)
	var f *failure
	switch {
	case err == nil || len(names) == 0:
		return err
	case !errors.As(err, &f) || !f.named:
		return err
	case len(names) == 1:
		*found++
		s.quarantine.refuseFound(names[0], f)
		if err := s.table.attempt(ctx, result); err != nil {
			// The kernel refuses the closed chain, too: the fault is elsewhere.
			s.quarantine.release(names[0])
			return err
		}
		return nil
	}
	s.quarantine.hold(names)
	half := len(names) / 2
	if err := s.halve(ctx, names[:half], result, found); err != nil {
		return err
	}
	return s.halve(ctx, names[half:], result, found)
}
