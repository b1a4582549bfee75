package nftables

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/tables"
)

// settle programs all that can be programmed, and sets aside what cannot. What
// the kernel refuses on knowledge that was not just read is tried again on what
// it really holds; then the objects that it names are set aside, and those that it
// does not name are searched for.
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

// retry tries again what is due of what is set aside, apart from all else: what
// is refused once more has changed nothing. Then the chains are opened that stood
// closed because of what is accepted now; what is accepted and asks for what is
// still refused is closed again.
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

// attempt programs everything that is neither set aside nor waits for its turn.
// again has what is known read anew if the kernel may have refused something only
// because it was not known well.
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
			err = asRefusal(t.program(ctx, result))
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

// applyAttempts bounds how often an attempt begins anew because others change
// what it was about to change.
const applyAttempts = 5

// asRefusal makes a refusal of an error about a message that could not be encoded.
func asRefusal(err error) error {
	var object *objectError
	if !isRefusal(err) && errors.As(err, &object) {
		return &refusedError{objects: []*objectError{object}}
	}
	return err
}

// readError is an error of getting to know what the kernel holds. Where it is that
// the kernel refuses the guard, no object is to blame.
type readError struct{ error }

// Unwrap returns the error.
func (e readError) Unwrap() error { return e.error }

// isRefusal reports whether the kernel refuses a transaction that is about
// objects.
func isRefusal(err error) bool {
	var refused *refusedError
	var read readError
	return errors.As(err, &refused) && !errors.As(err, &read)
}

func refusedObjects(err error) []*objectError {
	var refused *refusedError
	if errors.As(err, &refused) {
		return refused.objects
	}
	return nil
}

// condemn sets aside what a refusal names. It reports false if the names do not
// tell what is wrong.
func (t *Table) condemn(refusal error) (bool, error) {
	// A loop or a depth is found where the last piece is put in place, wherever
	// the fault is; memory is short for whoever comes next.
	for _, misleading := range []unix.Errno{unix.ELOOP, unix.EMLINK, unix.ENOMEM, unix.ENOBUFS, unix.EIO, unix.EINTR} {
		if errors.Is(refusal, misleading) {
			return false, nil
		}
	}
	objects := t.roots(refusedObjects(refusal))
	for _, e := range objects {
		if e.many {
			// Which entry it is, is seen when each is sent by itself.
			t.set(e.unit.name).single = true
			continue
		}
		e.least = max(e.least, t.lower(e.unit))
		if err := t.setAside(e); err != nil {
			return false, err
		}
	}
	return len(objects) > 0, nil
}

// roots returns, once each, the refused objects whose refusal does not follow
// from that of another one.
func (t *Table) roots(objects []*objectError) []*objectError {
	refused, changes := map[unit]bool{}, 0
	for _, e := range objects {
		refused[e.unit] = true
		if !e.removal {
			changes++
		}
	}
	var out []*objectError
	taken := map[unit]bool{}
	take := func(e *objectError) {
		if !taken[e.unit] {
			taken[e.unit] = true
			out = append(out, e)
		}
	}
	for _, e := range objects {
		// What cannot be deleted may still be referred to by what could not be
		// changed.
		if e.removal && changes > 0 || t.follows(e.unit, refused) {
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

// follows reports whether what is planned of a unit refers to another one that
// is refused.
func (t *Table) follows(u unit, refused map[unit]bool) bool {
	switch u.kind {
	case chainUnit:
		c := t.chains[u.name]
		if c == nil || c.want == nil {
			return false
		}
		rules, _ := c.goal()
		for r := range references(rules) {
			if r != u && refused[r] {
				return true
			}
		}
	case entryUnit:
		verdict, _ := t.set(u.name).members.goal(u.entry)
		return refused[unit{kind: setUnit, name: u.name}] || refused[unit{kind: chainUnit, name: tables.Target(verdict)}]
	}
	return false
}
