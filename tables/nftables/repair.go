package nftables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables/edit"
)

// differences says in words what is wrong with the chain that was found, going
// by what was known of it. Either may be nil.
func (k *kernelChain) differences(found *kernelChain) string {
	switch {
	case k == nil && found == nil:
		return ""
	case k == nil:
		return "foreign chain"
	case found == nil:
		return "deleted"
	}
	var parts []string
	switch {
	case found.base.hooked() != k.base.hooked():
		parts = append(parts, "hook changed")
	case found.base != k.base:
		parts = append(parts, "policy changed")
	}
	return strings.Join(append(parts, ruleDifferences(k.rules, found.rules)...), ", ")
}

func ruleDifferences(known, found []kernelRule) []string {
	if slices.Equal(known, found) {
		return nil
	}
	// Of each content, how many rules are missing, and of each hash.
	missing, byHash := map[kernelRule]int{}, map[string]int{}
	for _, r := range known {
		missing[r.content()]++
	}
	for _, r := range found {
		missing[r.content()]--
	}
	for r, n := range missing {
		if n > 0 {
			byHash[r.hash] += n
		}
	}
	var lost, changed, foreign int
	for r, n := range missing {
		if n >= 0 {
			lost += n
			continue
		}
		same := min(-n, byHash[r.hash])
		if r.hash == "" {
			same = 0
		}
		byHash[r.hash] -= same
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

// content is the rule without what tells equal ones apart.
func (r kernelRule) content() kernelRule {
	r.handle = 0
	return r
}

func contents(rules []kernelRule) []string {
	out := make([]string, len(rules))
	for i, r := range rules {
		out[i] = fmt.Sprint(r.content())
	}
	return out
}

// differences says in words what is wrong with the set that was found, going
// by what is known of it. found may be nil.
func (s *set) differences(found *kernelSet) string {
	switch {
	case s.have == nil && found == nil:
		return ""
	case s.have == nil:
		return "foreign " + found.shape.noun()
	case found == nil:
		return "deleted"
	case found.shape != s.have.shape:
		return "type changed"
	case s.have.reload:
		return "" // it was known to hold what is none of ours
	case !found.regular:
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
		if verdict, ok := found.members[m]; !ok {
			missing++
		} else if verdict != held.verdict {
			changed++
		}
	}
	for m := range s.members.want {
		see(m)
	}
	for m := range s.members.before {
		if _, seen := s.members.want[m]; !seen {
			see(m)
		}
	}
	foreign = len(found.members) - (known - missing)
	one, many := "member", "members"
	if s.shape.verdicts {
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
