package nftables

import (
	"fmt"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
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
	d := ruleDrift(known.Rules, found.Rules)
	switch {
	case found.Base.Hooked() != known.Base.Hooked():
		d.Words = []string{"hook changed"}
	case found.Base != known.Base:
		d.Words = []string{"policy changed"}
	}
	return d.String()
}

func ruleDrift(known, found []kernel.Rule) tables.Drift {
	d := tables.Drift{Part: "rule", Parts: "rules"}
	if slices.Equal(known, found) {
		return d
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
	d.Missing, d.Foreign, d.Changed = lost-changed, foreign, changed
	if lost+foreign == 0 {
		d.Moved = len(edit.Minimal(contents(known), contents(found)).Deletes)
	}
	return d
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
	var missing, changed, known int
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
	d := tables.Drift{Part: "member", Parts: "members", Missing: missing, Foreign: len(found.Members) - (known - missing)}
	if s.shape.Verdicts || s.shape.Numbers {
		d.Part, d.Parts = "entry", "entries"
	}
	if changed > 0 {
		d.Words = []string{tables.Drift{Part: "verdict", Parts: "verdicts", Changed: changed}.String()}
	}
	return d.String()
}
