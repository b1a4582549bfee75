package kernel

import (
	"slices"
	"strings"
	"time"

	"github.com/felixlike/felixlike/tables"
)

// The waits before the next try of a refused set: the first and the longest.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// retry counts the attempts at something that the kernel refuses. The zero
// value is due.
type retry struct {
	since, next time.Time
	attempts    int
}

// again returns the retry after one more attempt that failed.
func (r retry) again(now time.Time) retry {
	if r.attempts == 0 {
		r.since = now
	}
	r.next = now.Add(min(firstRetry<<min(r.attempts, 16), lastRetry))
	r.attempts++
	return r
}

func (r retry) due(now time.Time) bool { return !now.Before(r.next) }

// refusal is why a set is quarantined.
type refusal struct {
	retry
	member, reason string
}

// Refused returns the quarantined sets, sorted by name. Their content in the kernel, if
// they are there at all, is not the desired one: the chains that name them have to be
// closed.
func (s *Sets) Refused() []tables.Refusal {
	var out []tables.Refusal
	for name, t := range s.sets {
		if r := t.refusal; r != nil {
			out = append(out, tables.Refusal{
				Object: "set", Name: name, Rule: r.member, Reason: r.reason,
				Since: r.since, NextTry: r.next, Attempts: r.attempts,
			})
		}
	}
	slices.SortFunc(out, func(a, b tables.Refusal) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// refuse quarantines a set.
func (s *Sets) refuse(t *set, member, reason string) {
	if t.refusal == nil {
		t.refusal = &refusal{}
	}
	*t.refusal = refusal{retry: t.refusal.again(s.now()), member: member, reason: reason}
}

// Leftovers returns the kernel's names of sets that are not desired but in use, sorted.
func (s *Sets) Leftovers() []string {
	var out []string
	for _, name := range sorted(s.obsolete) {
		if s.obsolete[name].attempts > 0 {
			out = append(out, name)
		}
	}
	return out
}

// misfits returns a member that the set cannot have, with the reason, or "".
func (s *set) misfits() (member, reason string) {
	for m, why := range s.bad {
		if text := m.String(); member == "" || strings.Compare(text, member) < 0 {
			member, reason = text, why
		}
	}
	return member, reason
}
