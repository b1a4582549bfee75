package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/internal/backoff"
)

const (
	// changeTimeout bounds an apply of changes; the first apply, a full read, and the apply
	// after a failure or a foreign change have the stage's Timeout.
	changeTimeout = 10 * time.Second
	// firstRetrial is the first wait between two attempts to program a refused policy.
	firstRetrial = 10 * time.Second
	// maxFirstMisses is how many first applies may miss their deadline until the engine
	// gets the large policies without their rules.
	maxFirstMisses = 2
)

// probation finds the policies that make an apply miss its deadline. A busy machine misses
// deadlines too. So it tries only policies that are new or changed since the last
// successful apply. It refuses a policy only if it misses the deadline again, alone, after an
// apply without it has succeeded. Refused policies are tried again later.
type probation struct {
	now func() time.Time
	// groups wait for a trial, each in one apply; running is the group of the current
	// trial.
	groups  [][]*item
	running []*item
	// lastWasNoTrial is set if the last cycle was no trial. Other changes get every second cycle.
	lastWasNoTrial bool
	// misses counts first applies that missed their deadline.
	misses  int
	history refusalHistory
}

func newProbation() probation { return probation{now: time.Now, history: refusalHistory{}} }

// pending reports whether there is a trial or a group that waits for one. Changes wait
// meanwhile, so that a trial's outcome is about its group.
func (s *probation) pending() bool { return len(s.groups)+len(s.running) > 0 }

func (s *probation) add(group ...*item) { s.groups = append(s.groups, group) }

// begin begins the next trial in a cycle. It reports whether the cycle is a trial.
func (s *probation) begin(ts *Queue) bool {
	now := s.now()
	anyFresh := false
	for _, t := range ts.items {
		if t.state == refused && t.Due(now) {
			t.state = unproven
			s.add(t)
		}
		anyFresh = anyFresh || t.state == newRules
	}
	if s.forget(ts); len(s.running) > 0 {
		return true
	}
	if !s.lastWasNoTrial || anyFresh {
		s.lastWasNoTrial = true
		return false
	}
	for len(s.groups) > 0 && len(s.running) == 0 {
		for _, t := range s.groups[0] {
			if t.state == unproven && ts.items[t.id] == t {
				s.running = append(s.running, t)
			}
		}
		s.groups = s.groups[1:]
	}
	for _, t := range s.running {
		ts.submit(t)
	}
	s.lastWasNoTrial = len(s.running) == 0
	return len(s.running) > 0
}

// Ended takes the outcome of a run of the policy stage: its error, the model's revision with which it began, and the time that it took.
func (ts *Queue) Ended(err error, revision uint64, took time.Duration) {
	s := &ts.probation
	r, _ := ts.dataplane.Runs()
	switch {
	case err == nil:
		s.succeeded(ts, revision)
		ts.report()
	case !errors.Is(err, context.DeadlineExceeded):
	case r.Applied:
		s.missed(ts, 0, revision, took)
	default:
		// The state in force may be an earlier agent's, so all policies are tried once more.
		if s.misses++; s.misses >= maxFirstMisses {
			s.missed(ts, largeCost, revision, took)
		}
	}
}

func (s *probation) succeeded(ts *Queue, revision uint64) {
	for id, t := range ts.items {
		if t.state != newRules || t.submittedAt == 0 || t.submittedAt > revision {
			continue
		}
		if t.outdated() {
			t.record = record{}
			ts.wait(t)
			continue
		}
		t.state, t.record = settled, record{}
		if t.cost < largeCost {
			delete(ts.items, id)
		}
	}
	s.forget(ts)
}

// forget removes policies from the running trial that changed their state or are gone.
func (s *probation) forget(ts *Queue) {
	s.running = slices.DeleteFunc(s.running, func(t *item) bool { return t.state != newRules || ts.items[t.id] != t })
}

// missed withdraws the new and changed policies of an apply that missed its deadline. With a
// cost, it withdraws only those that cost at least as much, and they get no rules.
func (s *probation) missed(ts *Queue, cost time.Duration, revision uint64, took time.Duration) {
	var among []*item
	for _, t := range ts.items {
		if t.state == newRules && t.submittedAt > 0 && t.submittedAt <= revision && t.cost >= cost {
			among = append(among, t)
		}
	}
	if len(among) == 0 {
		ts.dataplane.Flush()
		return
	}
	slices.SortFunc(among, (*item).compare)
	alone := len(among) == 1 && slices.Contains(s.running, among[0])
	s.running, s.lastWasNoTrial = nil, false
	for _, t := range among {
		state := unproven
		before := t.before
		if cost > 0 {
			before = nil
		}
		if alone {
			state, before = refused, nil
			t.refuse(s.now(), took)
		}
		if t.wanted == nil {
			t.state = state
			ts.submit(t)
			continue
		}
		t.admit(ts.cluster.Engine(), before, state)
	}
	if half := len(among) / 2; half > 0 {
		s.add(among[:half]...)
		s.add(among[half:]...)
	} else if !alone {
		s.add(among...)
	}
	ts.dataplane.Flush()
}

// changed takes a change of a refused policy. It tries the policy early if its cost fell by a
// quarter. Otherwise a tenant could get early trials by changing it again and again.
func (s *probation) changed(t *item) {
	if 4*t.cost > 3*t.tried {
		return
	}
	t.state, t.Next, t.touched = unproven, time.Time{}, true
	s.add(t)
}

// refuse quarantines a policy after its apply missed the deadline.
func (t *item) refuse(now time.Time, took time.Duration) {
	t.RefusedFor(now, firstRetrial)
	t.touched = false
	t.why = fmt.Sprintf("the apply that programs it was not done within %s: make it smaller, or split it", took.Round(time.Second))
}

// Limit bounds the next run of the policy stage, which has this timeout. change is set if the run programs changes only. A policy
// that is tried alone gets more time with each trial.
func (ts *Queue) Limit(timeout time.Duration, change bool) time.Duration {
	return ts.probation.limit(timeout, change, ts.cluster.Model().Rules())
}

// limit bounds a run on a node with so many rules.
func (s *probation) limit(timeout time.Duration, isChange bool, rules int) time.Duration {
	full, change := backend.MoreTime(rules)
	full += timeout
	if !isChange {
		return full
	}
	attempts := 0
	if len(s.running) == 1 && !s.running[0].touched {
		attempts = s.running[0].Attempts
	}
	return backoff.After(attempts+1, changeTimeout+change, full)
}

// deleted remembers a policy that is deleted while it is unproven, refused or tried.
func (s *probation) deleted(t *item) {
	if t.state == newRules && (t.Attempts > 0 || slices.Contains(s.running, t)) {
		t.state = unproven
	}
	if t.state == unproven || t.state == refused {
		s.history.remember(t, s.now())
	}
}

// unreadable takes a policy that cannot be understood any more while an apply has its rules.
// That apply's outcome is not about the new version, so a trial counts as failed.
func (s *probation) unreadable(t *item) {
	if len(s.running) != 1 || s.running[0] != t {
		t.state = unproven
		return
	}
	t.state = refused
	t.refuse(s.now(), 0)
	t.why = "it changed into a policy that cannot be understood while it was tried again after a missed deadline"
}

// created takes a new policy. It gets the state of a deleted policy that was refused with its namespace and
// name.
func (s *probation) created(t *item) {
	one, ok := s.history.recall(t.id, s.now())
	if !ok {
		return
	}
	t.state, t.record = one.state, one.record
	if t.state == unproven {
		s.add(t)
	}
}
