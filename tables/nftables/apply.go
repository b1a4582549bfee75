package nftables

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/felixlike/felixlike/tables"
)

// Apply programs the desired state in one transaction, or in as few as possible if the
// kernel does not take all at once. Without a difference it sends nothing. It repairs
// the foreign changes that Watch has received in the same transaction. If another
// program commits first, it reads again.
//
// After an error the kernel has its former state (of a load in several transactions:
// with those before the refused one, none of which has a new base chain), and the next
// Apply reads the table in full. The error is, or contains, an ObjectError if it
// concerns one object.
func (t *Table) Apply(ctx context.Context) (tables.Result, error) {
	start := time.Now()
	result, err := t.apply(ctx)
	result.Rules, result.Elements = t.rules, t.elements
	result.Duration = time.Since(start)
	if err == nil {
		return result, nil
	}
	t.synced = false
	// The messages left in the socket belong to the failed transaction.
	err = errors.Join(err, t.disconnect())
	return result, fmt.Errorf("apply to table %s: %w", t.options.title(), err)
}

func (t *Table) apply(ctx context.Context) (tables.Result, error) {
	var result tables.Result
	if err := ctx.Err(); err != nil {
		return result, err
	}
	t.quarantine.begin()
	defer t.quarantine.end()
	err := t.settle(ctx, &result)
	if err == nil {
		result.Repaired = t.drift.repaired()
		err = t.retry(ctx, &result)
	}
	result.Refused = t.quarantine.refusals()
	return result, err
}

// settle programs every object that the kernel accepts, and quarantines the others.
// After a refusal it first reads the kernel's state and tries again, unless the state
// was just read. Then it quarantines the objects that the refusal names, or searches
// for the object if the refusal names none.
func (t *Table) settle(ctx context.Context, result *tables.Result) error {
	retried := false
	for {
		err := t.attempt(ctx, true, result)
		if err == nil || !isRefusal(err) {
			return err
		}
		again, fatal := t.quarantine.addNamed(err)
		switch {
		case fatal != nil:
			return fatal
		case again:
		case !retried:
			retried, t.synced = true, false
		default:
			if err := t.finder.search(ctx, err, result); err != nil {
				return err
			}
		}
	}
}

// retry tries the quarantined objects that are due, apart from all other changes: one
// more refusal changes nothing. Then it opens the chains that were closed because of
// objects accepted now. A chain that also refers to a refused object is closed again.
func (t *Table) retry(ctx context.Context, result *tables.Result) error {
	due := t.quarantine.due()
	if err := t.finder.probe(ctx, t.finder.admission(false), due, nil, result); err != nil {
		return err
	}
	opens := t.quarantine.reopens()
	if err := t.finder.probe(ctx, t.finder.admission(false), opens, nil, result); err != nil {
		return err
	}
	if len(due)+len(opens) == 0 {
		return nil
	}
	return t.settle(ctx, result)
}

// attempt programs every object that is neither quarantined nor held back by a search.
// With again it reads the kernel's state and tries once more, if an outdated known
// state may be the reason of a refusal.
func (t *Table) attempt(ctx context.Context, again bool, result *tables.Result) error {
	for n := 1; ; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.validator.validate(); err != nil {
			return err
		}
		if err := t.connect(); err != nil {
			return err
		}
		full, err := t.learn(result)
		result.FullRead = result.FullRead || full
		if err != nil {
			err = readError{err}
		} else {
			if err := t.replacements.decide(); err != nil {
				return err
			}
			err = t.program(ctx, result)
		}
		if err == nil {
			t.quarantine.accepted()
			return nil
		}
		t.synced = t.synced && t.trusted
		if n == applyAttempts || !t.overtaken(err, result.FullRead || !again) {
			return err
		}
		t.synced = false
	}
}

// applyAttempts bounds how often an attempt begins anew because other programs change
// the same objects.
const applyAttempts = 5
