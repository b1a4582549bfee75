package packetlog

import (
	"slices"
	"time"

	"github.com/felixlike/felixlike/internal/isolate"
	"github.com/felixlike/felixlike/tables"
)

// logRetries says when to try again after failures: the wait doubles with each one.
type logRetries struct {
	isolate.Retry
	// backend is the one that failed, logged the last reason that was logged.
	backend, logged string
}

// of starts anew if another backend is in force.
func (r *logRetries) of(backend string) (changed bool) {
	if changed = r.backend != backend; changed {
		*r = logRetries{backend: backend}
	}
	return changed
}

// failed records a failure of an attempt. news is whether the reason is another than before.
func (r *logRetries) failed(began, now time.Time, err error) (news bool) {
	if now.Sub(began) > isolate.LongestWait { // it worked for long
		r.Retry = isolate.Retry{}
	}
	r.RefusedFor(now, logRetry)
	news = r.logged != err.Error()
	r.logged = err.Error()
	return news
}

// logRefusals has the objects that were quarantined before the reports were turned on: these were
// not refused because of the reports.
type logRefusals struct{ before []tables.Refusal }

// more returns an object that was not quarantined before, or is for another reason.
func (r *logRefusals) more(now []tables.Refusal) *tables.Refusal {
	same := func(all []tables.Refusal, o tables.Refusal) bool {
		return slices.ContainsFunc(all, func(r tables.Refusal) bool { return r.SameObject(o) && r.Reason == o.Reason })
	}
	// One that was accepted meanwhile may be refused because of the reports after that.
	r.before = slices.DeleteFunc(r.before, func(b tables.Refusal) bool { return !same(now, b) })
	for _, o := range now {
		if !same(r.before, o) {
			return &o
		}
	}
	return nil
}
