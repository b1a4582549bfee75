package nftables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables/edit"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// chainDifferences describes the differences between the known and the found chain. Either may be nil.
func chainDifferences(known, found *kernel.Chain) string {
	switch {
	case known == nil && found == nil:
		return ""
	case known == nil:
		return "foreign chain"
	case found == nil:
		return "deleted"
	}
	var parts []string
	switch {
	case found.Base.Hooked() != known.Base.Hooked():
		parts = append(parts, "hook changed")
	case found.Base != known.Base:
		parts = append(parts, "policy changed")
	}
	return strings.Join(append(parts, ruleDifferences(known.Rules, found.Rules)...), ", ")
}

func ruleDifferences(known, found []kernel.Rule) []string {
	if slices.Equal(known, found) {
		return nil
	}
	// Of each content, how many rules are missing, and of each hash.
	missing, byHash := map[kernel.Rule]int{}, map[string]int{}
	for _, r := range known {
		missing[withoutHandle(r)]++
	}
	for _, r := range found {
		missing[withoutHandle(r)]--
	}
	for r, n := range missing {
		if n > 0 {
			byHash[r.Hash] += n
		}
	}
	var lost, changed, foreign int
	for r, n := range missing {
		if n >= 0 {
			lost += n
			continue
		}
		same := min(-n, byHash[r.Hash])
		if r.Hash == "" {
			same = 0
		}
		byHash[r.Hash] -= same
		changed += same
		foreign += -n - same
	}
	moved := 0
	if lost+foreign == 0 {
		moved = len(edit.Minimal(contents(known), contents(found)).Deletes)
	}
	return counted(count{lost - changed, "rule missing", "rules missing"}, count{foreign, "foreign rule", "foreign rules"},
		count{changed, "rule changed", "rules changed"}, count{moved, "rule moved", "rules moved"})
}

// withoutHandle returns the rule without the handle, which distinguishes equal rules.
func withoutHandle(r kernel.Rule) kernel.Rule {
	r.Handle = 0
	return r
}

func contents(rules []kernel.Rule) []string {
	out := make([]string, len(rules))
	for i, r := range rules {
		out[i] = fmt.Sprint(withoutHandle(r))
	}
	return out
}

// differences describes the differences between the known and the found set. found may be nil.
func (s *set) differences(found *kernel.Set) string {
	switch {
	case s.observed == nil && found == nil:
		return ""
	case s.observed == nil:
		return "foreign " + found.Shape.Noun()
	case found == nil:
		return "deleted"
	case found.Shape != s.observed.shape:
		return "type changed"
	case s.observed.reload:
		return "" // a foreign set was known
	case !found.Regular:
		return "foreign elements"
	}
	var missing, foreign, changed int
	known := 0
	see := func(m model.Member) {
		held := s.members.held(m)
		if !held.present {
			return
		}
		known++
		if verdict, ok := found.Members[m]; !ok {
			missing++
		} else if verdict != held.verdict {
			changed++
		}
	}
	for m := range s.members.desired {
		see(m)
	}
	for m := range s.members.observed {
		if _, seen := s.members.desired[m]; !seen {
			see(m)
		}
	}
	foreign = len(found.Members) - (known - missing)
	one, many := "member", "members"
	if s.shape.Verdicts {
		one, many = "entry", "entries"
	}
	return strings.Join(counted(count{missing, one + " missing", many + " missing"},
		count{foreign, "foreign " + one, "foreign " + many}, count{changed, "verdict changed", "verdicts changed"}), ", ")
}

// count is a number of things, with their name.
type count struct {
	n         int
	one, many string
}

// counted puts the counts in words, but those of nothing.
func counted(counts ...count) []string {
	var out []string
	for _, c := range counts {
		switch {
		case c.n == 1:
			out = append(out, "1 "+c.one)
		case c.n > 1:
			out = append(out, fmt.Sprintf("%d %s", c.n, c.many))
		}
	}
	return out
}
