package nftables

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

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
func (q *quarantine) faults(refusal error) []*fault {
	var out []*fault
	for _, e := range refusedObjects(refusal) {
		e := *e
		if base, ok := standsFor(e.Unit.Name); ok && e.Unit.Kind == kernel.SetUnit && !q.isDesired(e.Unit) && !q.inKernel(e.Unit) {
			e.Unit.Name = base
		}
		out = append(out, &fault{ObjectError: e, removal: e.Unit.Kind != 0 && !q.isDesired(e.Unit)})
	}
	return out
}

// addNamed quarantines the objects that a refusal names. It reports false if the names
// do not identify the faulty object.
func (q *quarantine) addNamed(refusal error) (bool, error) {
	// The kernel reports a loop or a depth at the last piece, not at the faulty one, and
	// a lack of memory at any object.
	for _, misleading := range []unix.Errno{unix.ELOOP, unix.EMLINK, unix.ENOMEM, unix.ENOBUFS, unix.EIO, unix.EINTR} {
		if errors.Is(refusal, misleading) {
			return false, nil
		}
	}
	objects := q.roots(q.faults(refusal))
	for _, e := range objects {
		if e.Many {
			// Sending each entry by itself finds the faulty one.
			q.set(e.Unit.Name).single = true
			continue
		}
		e.atMost = max(e.atMost, q.lowerState(e.Unit))
		if err := q.add(e); err != nil {
			return false, err
		}
	}
	return len(objects) > 0, nil
}

// roots returns the refused objects whose refusal does not follow from that of another
// one, each once.
func (q *quarantine) roots(objects []*fault) []*fault {
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
		// An object whose deletion is refused may still have a reference from an object with a refused
		// change.
		if e.removal && changes > 0 || q.follows(e.Unit, refused) {
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
func (q *quarantine) follows(u kernel.Unit, refused map[kernel.Unit]bool) bool {
	switch u.Kind {
	case kernel.ChainUnit:
		c := q.chains[u.Name]
		if c == nil || c.desired == nil {
			return false
		}
		rules, _ := c.goal()
		for r := range references(rules) {
			if r != u && refused[r] {
				return true
			}
		}
	case kernel.EntryUnit:
		verdict, _ := q.set(u.Name).members.goal(u.Entry)
		return refused[kernel.Unit{Kind: kernel.SetUnit, Name: u.Name}] || refused[kernel.Unit{Kind: kernel.ChainUnit, Name: tables.Target(verdict)}]
	}
	return false
}
