package kernel

import (
	"slices"
	"strings"

	"github.com/felixlike/felixlike/internal/isolate"
	"github.com/felixlike/felixlike/tables"
)

// refusal is why a set is quarantined.
type refusal struct {
	isolate.Retry
	member, reason string
}

// Refused returns the quarantined sets, sorted by name. Their content in the kernel, if
// they are there at all, is not the desired one: the chains that name them have to be
// closed.
func (s *Sets) Refused() []tables.Refusal {
	var out []tables.Refusal
	for name, t := range s.sets {
		if r := t.refusal; r != nil {
			refusal := tables.Refusal{
				Object: "set", Name: name, Rule: r.member, Reason: r.reason,
				Since: r.Since, NextTry: r.Next, Attempts: r.Attempts,
			}
			if t.spec.Group != "" {
				refusal.Origin = tables.OfGroup{ID: t.spec.Group}
			}
			out = append(out, refusal)
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
	t.refusal.Refused(s.now())
	t.refusal.member, t.refusal.reason = member, reason
}

// Leftovers returns the kernel's names of sets that are not desired but in use, sorted.
func (s *Sets) Leftovers() []string {
	var out []string
	for _, name := range sorted(s.obsolete) {
		if s.obsolete[name].Attempts > 0 {
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
