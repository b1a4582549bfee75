package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
)

// States of a node that answers.
const (
	StateReady    = "Ready"
	StateDegraded = "Degraded"
	// StateChanging: a change is being programmed.
	StateChanging = "changing"
)

// State is as the function of that name; under a strict filter, a node that is ready but has a problem of an object is degraded.
func (f Filter) State(s control.Status) string {
	state := State(s)
	if state == StateReady && !f.Ready(s) {
		return StateDegraded
	}
	return state
}

// State returns one of the states of a node.
func State(s control.Status) string {
	switch {
	case Ready(s) && s.Handover == nil:
		return StateReady
	case s.InSync && s.LastApply.Error == "" && len(s.Quarantined) == 0 && len(s.Unready) == 0:
		return StateChanging
	}
	return StateDegraded
}

// Faults are the reasons why a node is degraded.
func Faults(s control.Status) []string {
	var all []string
	if !s.InSync {
		all = append(all, "the first listing of the datastore is not complete")
	}
	if s.LastApply.Error != "" {
		all = append(all, "the last apply failed: "+s.LastApply.Error)
	}
	all = append(all, outages(s)...)
	for _, q := range s.Quarantined {
		all = append(all, fmt.Sprintf("quarantined: %s: %s", q.Object(), q.Reason))
	}
	if h := s.Handover; h != nil && h.Error != "" {
		all = append(all, fmt.Sprintf("the change of the backend to %s fails: %s", h.To, h.Error))
	}
	return all
}

// RuleSum are the counters of a rule, summed over the nodes.
type RuleSum struct {
	control.RuleHits
	// Nodes counts the nodes with a pod that the policy applies to.
	Nodes int `json:"nodes"`
}

// RuleSums are the rules of several nodes.
type RuleSums struct {
	At time.Time `json:"at"`
	// Since is from when on all agents have known the time of a hit.
	Since time.Time `json:"since"`
	Rules []RuleSum `json:"rules"`
}

// SumOfRules adds up the counters of all nodes. Packets are known only if all nodes count them.
func SumOfRules(nodes []control.Hits) (s RuleSums) {
	type key struct{ policy, rule string }
	index := map[key]int{}
	s.Rules = []RuleSum{}
	for _, n := range nodes {
		if n.At.After(s.At) {
			s.At = n.At
		}
		if n.Since.After(s.Since) {
			s.Since = n.Since
		}
		for _, h := range n.Rules {
			k := key{h.Policy, h.Rule}
			i, known := index[k]
			if !known {
				index[k] = len(s.Rules)
				s.Rules = append(s.Rules, RuleSum{h, 1})
				continue
			}
			s.Rules[i].add(h)
		}
	}
	slices.SortStableFunc(s.Rules, func(a, b RuleSum) int { return cmp.Compare(a.Policy, b.Policy) })
	return s
}

func (r *RuleSum) add(h control.RuleHits) {
	r.Nodes++
	r.Connections += h.Connections
	r.Uncounted = r.Uncounted || h.Uncounted
	if r.Packets != nil && h.Packets != nil {
		packets := *r.Packets + *h.Packets
		r.Packets = &packets
	} else {
		r.Packets = nil
	}
	if h.Last.After(r.Last) {
		r.Last = h.Last
	}
}
