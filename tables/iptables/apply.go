package iptables

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// Apply programs the desired state: at most one restore a family, and none without a
// difference. Each table changes as a whole or not at all, one table after the other.
//
// It reads the kernel's state on the first Apply, after a failure and after Invalidate.
// If a restore fails on a state that was read earlier, other programs may have changed
// it since: Apply reads again, and only a second failure counts. A faulty chain is
// quarantined (see tables.Refusal).
func (t *Table) Apply(ctx context.Context) (tables.Result, error) {
	start := t.now()
	if t.watcher.begin() {
		t.Invalidate()
	}
	out := &outcome{notes: t.notes, now: t.now}
	saves, restores := t.tools.started()
	err := t.apply(ctx, out)
	result := out.finish(t, t.now().Sub(start))
	result.Saves, result.Restores = t.tools.started()
	result.Saves, result.Restores = result.Saves-saves, result.Restores-restores
	t.watcher.end(t, result, err == nil)
	if err != nil {
		return result, fmt.Errorf("apply to iptables (%s): %w", t.options.Variant, err)
	}
	// What was found stays noted until it is undone.
	result.Repaired = out.repaired()
	clear(t.notes)
	return result, nil
}

func (t *Table) apply(ctx context.Context, out *outcome) error {
	if err := t.prepare(ctx); err != nil {
		return err
	}
	unexplained := 0
	for {
		if err := t.validate(); err != nil {
			return err
		}
		err := t.attempt(ctx, out)
		var f *failure
		switch {
		case err == nil:
			t.settle()
			return nil
		case !errors.As(err, &f) || !f.blames:
			return err
		case f.about.chain != "" && t.chains[f.about.chain].want.Hook != nil:
			return &tables.ObjectError{Object: "chain", Name: f.about.chain, Rule: t.ruleName(f.about), Err: f}
		case f.about.chain != "":
			t.refuse(f.about.chain, t.ruleName(f.about), t.why(f.about.chain, f))
		case unexplained < attemptsUnexplained:
			unexplained++
		default:
			if err := t.search(ctx, f, out); err != nil {
				return err
			}
		}
	}
}

// attemptsUnexplained is how often a write is tried again that has failed on
// a state just read and for no reason given: others may have written in between.
const attemptsUnexplained = 2

// prepare makes ready for an Apply.
func (t *Table) prepare(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if t.tools == nil {
		found, err := findTools(ctx, t.options.Variant, t.families, t.options.NetNS)
		if err != nil {
			return err
		}
		found.begin = t.watcher.start
		t.tools = found
	}
	for _, s := range t.state {
		s.fresh = false
	}
	t.retry()
	return nil
}

// settle records that the desired state is programmed. It visits the chains only if any
// may have changed: an Apply after a change of members must not cost a walk over a
// thousand chains.
func (t *Table) settle() {
	changed := len(t.touched) > 0
	clear(t.touched)
	clear(t.retried)
	for _, s := range t.state {
		changed = changed || s.all
		s.all = false
	}
	if !changed {
		return
	}
	for name, c := range t.chains {
		if c.unused() {
			delete(t.chains, name)
		}
	}
}

// attempt programs until a failure is not due to other programs. A held lock is no
// refusal. Nor is a failure on a state that is not fresh, since others may have
// changed it.
func (t *Table) attempt(ctx context.Context, out *outcome) error {
	for {
		err := t.program(ctx, out)
		var f *failure
		if !errors.As(err, &f) || f.fresh && !f.busy {
			return err
		}
	}
}

// program makes the tables of each family be as wanted, as far as it is not
// held back.
func (t *Table) program(ctx context.Context, out *outcome) error {
	for _, f := range t.families {
		if err := t.refresh(ctx, f, out); err != nil {
			return err
		}
	}
	t.reach()
	for _, f := range t.families {
		if err := t.write(ctx, f, out); err != nil {
			return err
		}
	}
	return nil
}

// write carries the difference of one family out.
func (t *Table) write(ctx context.Context, f model.Family, out *outcome) error {
	state, s := t.state[f], t.plan(f)
	if s.sections == 0 {
		t.commit(f, s)
		return nil
	}
	if err := t.load(ctx, f, s); err != nil {
		var refused *failure
		// After a refusal everything is as it was before, if it was one table.
		asBefore := errors.As(err, &refused) && s.sections == 1
		state.trusted = state.trusted && asBefore
		// A fault in our own rules is not due to other programs.
		state.known = asBefore && refused.fresh && (refused.about.chain != "" || t.holding != nil && !refused.about.entry)
		return err
	}
	out.count(s)
	t.commit(f, s)
	return t.learn(ctx, f, out)
}

// load runs a restore. While another program holds the lock it tries again,
// inside the time that the context gives.
func (t *Table) load(ctx context.Context, f model.Family, s *script) error {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := t.tools.load(ctx, f, []byte(s.text.String()))
		if err == nil {
			return nil
		}
		err = failed(err, f, s, t.state[f].fresh)
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

// commit notes what the kernel holds after a script.
func (t *Table) commit(f model.Family, s *script) {
	for _, c := range s.changes {
		c.chain.have[c.place] = c.now
	}
	t.counted = t.counted && len(s.changes) == 0
	state := t.state[f]
	for e, now := range s.entries {
		state.entries[e] = now
		if len(now.texts) == 0 {
			delete(state.entries, e)
		}
	}
}
