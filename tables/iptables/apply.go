package iptables

import (
	"context"
	"errors"
	"fmt"

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
	start := t.quarantine.now()
	if t.watcher.begin() {
		t.Invalidate()
	}
	saves, restores := t.tools.saves, t.tools.restores
	var result tables.Result
	err := t.apply(ctx, &result)
	result.Duration = t.quarantine.now().Sub(start)
	result.Rules, result.Refused = t.observed.rules(), t.quarantine.refusals()
	result.Saves, result.Restores = t.tools.saves-saves, t.tools.restores-restores
	result.Unreadable = t.observed.unreadable()
	t.watcher.end(result, err == nil)
	if err != nil {
		return result, fmt.Errorf("apply to iptables (%s): %w", t.options.Variant, err)
	}
	result.Repaired = t.drift.repaired()
	return result, nil
}

// apply validates and programs the desired state until the kernel has accepted it,
// without the chains that it quarantines meanwhile.
func (t *Table) apply(ctx context.Context, result *tables.Result) error {
	if err := t.prepare(ctx); err != nil {
		return err
	}
	t.quarantine.retry()
	unexplained, doubts := 0, doubts{refused: map[string]int{}}
	for {
		if err := t.validator.validate(); err != nil {
			return err
		}
		err := t.attempt(ctx, result)
		var f *failure
		switch {
		case err == nil:
			t.quarantine.accepted()
			t.observed.settle()
			return nil
		case !errors.As(err, &f) || !f.named:
			return err
		case f.about.chain != "" && doubts.about(f.about.chain):
			t.observed.state[f.family].known = false
		case doubts.refused[f.about.chain] > attemptsUnexplained:
			return err
		case f.about.chain != "":
			if err := t.quarantine.refuseNamed(f); err != nil {
				return err
			}
		case unexplained < attemptsUnexplained:
			unexplained++
		default:
			if err := t.finder.search(ctx, f, result); err != nil {
				return err
			}
		}
	}
}

// doubts are the refusals of one Apply that may not be the fault of the chain that they name: if another program has
// changed the table since it was read, a line may not fit it. The chain would be closed though nothing is wrong with it,
// and the lines that close it would not fit either.
type doubts struct {
	// confirmed says that a refusal came again on a state that was read after it.
	confirmed bool
	// refused counts the refusals of each chain that count, rereads the reads after those that do not.
	refused map[string]int
	rereads int
}

// about reports whether a refusal does not count, and the tables have to be read again: the first refusal of all, and
// those of a chain that is closed already.
func (d *doubts) about(chain string) bool {
	if !d.confirmed || d.refused[chain] > 0 && d.rereads <= attemptsUnexplained {
		d.confirmed = true
		d.rereads++
		return true
	}
	d.refused[chain]++
	return false
}

// attemptsUnexplained is how often a write is tried again that has failed on
// a state just read and for no reason given: others may have written in between.
const attemptsUnexplained = 2

// prepare begins an Apply or a removal: it finds the programs.
func (t *Table) prepare(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := t.tools.find(ctx); err != nil {
		return err
	}
	t.observed.begin()
	return nil
}

// attempt programs until a failure is not due to other programs. A held lock is no
// refusal. Nor is a failure on a state that is not fresh, since others may have
// changed it.
func (t *Table) attempt(ctx context.Context, result *tables.Result) error {
	for {
		err := t.program(ctx, result)
		var f *failure
		if !errors.As(err, &f) || f.fresh && !f.busy {
			return err
		}
	}
}

// program makes the kernel hold the desired state of all chains that no search holds:
// read, locate, plan, write, learn.
func (t *Table) program(ctx context.Context, result *tables.Result) error {
	for _, f := range t.families {
		read, err := t.reader.refresh(ctx, f)
		if err != nil {
			return err
		}
		result.FullRead = result.FullRead || read
	}
	t.planner.locate()
	for _, f := range t.families {
		wrote := false
		for _, s := range t.planner.plan(f) {
			if err := t.writer.write(ctx, f, s); err != nil {
				return err
			}
			s.countIn(result)
			wrote = wrote || s.sections > 0
		}
		if !wrote {
			continue
		}
		if err := t.reader.learn(ctx, f); err != nil {
			return err
		}
	}
	return nil
}
