package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/felixlike/felixlike/internal/isolate"
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
	halves := isolate.Search[string]{
		Admit: s.quarantine.admit,
		Hold:  s.quarantine.hold,
		Try:   func() error { return s.table.attempt(ctx, result) },
		IsRefusal: func(err error) bool {
			var f *failure
			return errors.As(err, &f) && f.named
		},
		Isolate: func(name string, refusal error) error {
			found++
			return s.isolate(ctx, name, refusal, result)
		},
	}
	if err := halves.Run(names, nil); err != nil {
		return err
	}
	if found == 0 {
		return fmt.Errorf("iptables-restore refuses the batch but accepts each half: no single chain is at fault: %w", f)
	}
	return nil
}

// isolate quarantines a chain that is refused alone, and closes it.
func (s *faultFinder) isolate(ctx context.Context, name string, refusal error, result *tables.Result) error {
	var f *failure
	if !errors.As(refusal, &f) {
		return refusal
	}
	s.quarantine.refuseFound(name, f)
	if err := s.table.attempt(ctx, result); err != nil {
		// The kernel refuses the closed chain, too: the fault is elsewhere.
		s.quarantine.release(name)
		return err
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
