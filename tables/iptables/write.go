package iptables

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// writer runs scripts, and records the kernel's state after them.
type writer struct {
	*observed
	quarantine *quarantine
	tools      *tools
}

// write carries out the difference of one family.
func (w *writer) write(ctx context.Context, f model.Family, s *script) error {
	if s.sections == 0 {
		w.written(f, s)
		return nil
	}
	if err := w.carryOut(ctx, f, s); err != nil {
		state := w.state[f]
		var refused *failure
		// After a refusal everything is as it was before, if it was one table.
		asBefore := errors.As(err, &refused) && s.sections == 1
		state.trusted = state.trusted && asBefore
		// A fault in our own rules is not due to other programs.
		state.known = asBefore && refused.fresh && (refused.about.chain != "" || w.quarantine.searching() && !refused.about.entry)
		return err
	}
	w.written(f, s)
	if s.hidden && len(s.entries) > 0 {
		w.state[f].known = false // the handles of the new entries are not known
	}
	return nil
}

// carryOut runs a script, with what it deletes by netlink.
func (w *writer) carryOut(ctx context.Context, f model.Family, s *script) error {
	deleteHidden := func(ops []kernel.Op) error {
		if len(ops) == 0 {
			return nil
		}
		k := s.about[0].place.table()
		if err := commitHidden(w.tools.netns, f, k.String(), ops); err != nil {
			return fmt.Errorf("delete rules that lead to our chains from table %s of IPv%s: %w", k, f, err)
		}
		return nil
	}
	if err := deleteHidden(s.before); err != nil {
		return err
	}
	if err := w.load(ctx, f, s); err != nil {
		return err
	}
	return deleteHidden(s.after)
}

// load runs a restore. While another program holds the lock it tries again,
// inside the time that the context gives.
func (w *writer) load(ctx context.Context, f model.Family, s *script) error {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := w.tools.load(ctx, f, []byte(s.text.String()))
		if err == nil {
			return nil
		}
		err = failed(err, f, s, w.state[f].fresh)
		var refused *failure
		// The lock is taken for each table: of several, some may be written.
		if !errors.As(err, &refused) || !refused.busy || s.sections > 1 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the lock of iptables: %w", errors.Join(context.Cause(ctx), err))
		case <-time.After(pause):
		}
	}
}
