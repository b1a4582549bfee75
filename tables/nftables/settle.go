package nftables

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

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
		again, fatal := t.condemn(err)
		switch {
		case fatal != nil:
			return fatal
		case again:
		case !retried:
			retried, t.known = true, false
		default:
			if err := t.search(ctx, err, result); err != nil {
				return err
			}
		}
	}
}

// retry tries the quarantined objects that are due, apart from all other changes: one
// more refusal changes nothing. Then it opens the chains that were closed because of
// objects accepted now. A chain that also refers to a refused object is closed again.
func (t *Table) retry(ctx context.Context, result *tables.Result) error {
	due := t.due()
	if _, err := t.probe(ctx, t.admission(false), due, nil, result); err != nil {
		return err
	}
	opens := t.reopens()
	if _, err := t.probe(ctx, t.admission(false), opens, nil, result); err != nil {
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
		if err := t.validate(); err != nil {
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
			if err := t.stand(); err != nil {
				return err
			}
			err = t.program(ctx, result)
		}
		if err == nil {
			t.accepted()
			return nil
		}
		t.known = t.known && t.trusted
		if n == applyAttempts || !t.overtaken(err, result.FullRead || !again) {
			return err
		}
		t.known = false
	}
}

// applyAttempts bounds how often an attempt begins anew because other programs change
// the same objects.
const applyAttempts = 5

// readError is an error of reading the kernel's state. If the kernel refuses the guard
// meanwhile, that is no object's fault.
type readError struct{ error }

// Unwrap returns the error.
func (e readError) Unwrap() error { return e.error }

// isRefusal reports whether the error is the kernel's refusal of a transaction with
// objects.
func isRefusal(err error) bool {
	var refused *kernel.RefusedError
	var read readError
	return errors.As(err, &refused) && !errors.As(err, &read)
}

func refusedObjects(err error) []*kernel.ObjectError {
	var refused *kernel.RefusedError
	if errors.As(err, &refused) {
		return refused.Objects
	}
	return nil
}

// faults returns the objects that a refusal names.
func (t *Table) faults(refusal error) []*fault {
	var out []*fault
	for _, e := range refusedObjects(refusal) {
		out = append(out, &fault{ObjectError: *e, removal: e.Unit.Kind != 0 && !t.wants(e.Unit)})
	}
	return out
}

// condemn quarantines the objects that a refusal names. It reports false if the names
// do not identify the faulty object.
func (t *Table) condemn(refusal error) (bool, error) {
	// The kernel reports a loop or a depth at the last piece, not at the faulty one, and
	// a lack of memory at any object.
	for _, misleading := range []unix.Errno{unix.ELOOP, unix.EMLINK, unix.ENOMEM, unix.ENOBUFS, unix.EIO, unix.EINTR} {
		if errors.Is(refusal, misleading) {
			return false, nil
		}
	}
	objects := t.roots(t.faults(refusal))
	for _, e := range objects {
		if e.Many {
			// Sending each entry by itself finds the faulty one.
			t.set(e.Unit.Name).single = true
			continue
		}
		e.least = max(e.least, t.lower(e.Unit))
		if err := t.setAside(e); err != nil {
			return false, err
		}
	}
	return len(objects) > 0, nil
}

// roots returns the refused objects whose refusal does not follow from that of another
// one, each once.
func (t *Table) roots(objects []*fault) []*fault {
	refused, changes := map[kernel.Unit]bool{}, 0
	for _, e := range objects {
		refused[e.Unit] = true
		if !e.removal {
			changes++
		}
	}
	var out []*fault
	taken := map[kernel.Unit]bool{}
	take := func(e *fault) {
		if !taken[e.Unit] {
			taken[e.Unit] = true
			out = append(out, e)
		}
	}
	for _, e := range objects {
		// An object whose deletion is refused may still have a reference from an object whose
		// change is refused.
		if e.removal && changes > 0 || t.follows(e.Unit, refused) {
			continue
		}
		take(e)
	}
	if len(out) == 0 {
		for _, e := range objects {
			take(e)
		}
	}
	return out
}

// follows reports whether the planned content of a unit refers to a refused unit.
func (t *Table) follows(u kernel.Unit, refused map[kernel.Unit]bool) bool {
	switch u.Kind {
	case kernel.ChainUnit:
		c := t.chains[u.Name]
		if c == nil || c.want == nil {
			return false
		}
		rules, _ := c.goal()
		for r := range references(rules) {
			if r != u && refused[r] {
				return true
			}
		}
	case kernel.EntryUnit:
		verdict, _ := t.set(u.Name).members.goal(u.Entry)
		return refused[kernel.Unit{Kind: kernel.SetUnit, Name: u.Name}] || refused[kernel.Unit{Kind: kernel.ChainUnit, Name: tables.Target(verdict)}]
	}
	return false
}
