package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// DropFilter chooses denied packets. The zero value chooses all.
type DropFilter struct {
	// Pod is a namespace/name, Namespace a namespace: of either end.
	Pod, Namespace string
	// Direction is "ingress" or "egress", that of the policies that deny.
	Direction string
}

// Check returns an error for a filter that can choose nothing.
func (f DropFilter) Check() error {
	if f.Pod != "" {
		if _, err := control.ParsePod(f.Pod); err != nil {
			return fmt.Errorf("pod: %w", err)
		}
	}
	if f.Direction != "" && f.Direction != model.Ingress.String() && f.Direction != model.Egress.String() {
		return fmt.Errorf("direction %q: must be ingress or egress", f.Direction)
	}
	return nil
}

// Shows reports whether a drop is to be shown. That packets are missing always is.
func (f DropFilter) Shows(d control.Drop) bool {
	if d.NotShown > 0 {
		return true
	}
	either := func(is func(pod string) bool) bool { return is(d.From.Pod) || is(d.To.Pod) }
	return (f.Direction == "" || d.Direction == f.Direction) &&
		(f.Pod == "" || either(func(pod string) bool { return pod == f.Pod })) &&
		(f.Namespace == "" || either(func(pod string) bool { return strings.HasPrefix(pod, f.Namespace+"/") }))
}

// dropKey is the common part of the packets of one row.
type dropKey struct{ from, to, port, direction, by string }

// DropSum are denied packets that differ in time and source port only. Drop is the first of them.
type DropSum struct {
	control.Drop
	Packets uint64    `json:"packets"`
	Last    time.Time `json:"last"`
}

// DropSums are denied packets added up. The zero value has none.
type DropSums struct {
	rows map[dropKey]*DropSum
	// NotShown counts packets of which no more is known.
	NotShown uint64
}

// Add adds packets, the last of which came at a time.
func (s *DropSums) Add(d control.Drop, packets uint64, last time.Time) {
	if d.NotShown > 0 {
		s.NotShown += d.NotShown
		return
	}
	k := dropKey{d.From.String(), d.To.String(), d.PortText(), d.Direction, DeniedBy(d)}
	row := s.rows[k]
	if row == nil {
		if s.rows == nil {
			s.rows = map[dropKey]*DropSum{}
		}
		row = &DropSum{Drop: d}
		s.rows[k] = row
	}
	row.Packets += packets
	if last.After(row.Last) {
		row.Last = last
	}
}

// AddHistory adds the chosen packets of a history that came since a time.
func (s *DropSums) AddHistory(h control.DropHistory, f DropFilter, since time.Time) {
	for _, m := range h.Minutes {
		if m.Begin.Add(time.Minute).Before(since) {
			continue
		}
		s.NotShown += m.NotShown
		for _, flow := range m.Flows {
			if f.Shows(flow.Drop) && !flow.Last.Before(since) {
				s.Add(flow.Drop, flow.Packets, flow.Last)
			}
		}
	}
}

// Len returns the number of rows.
func (s *DropSums) Len() int { return len(s.rows) }

// Sorted has the most frequent first.
func (s *DropSums) Sorted() []*DropSum {
	keys := make([]dropKey, 0, len(s.rows))
	for k := range s.rows {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b dropKey) int {
		return cmp.Or(cmp.Compare(s.rows[b].Packets, s.rows[a].Packets), cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to),
			cmp.Compare(a.port, b.port), cmp.Compare(a.direction, b.direction), cmp.Compare(a.by, b.by))
	})
	all := make([]*DropSum, len(keys))
	for i, k := range keys {
		all[i] = s.rows[k]
	}
	return all
}

// DeniedBy names the denying policies or tier in a few words.
func DeniedBy(d control.Drop) string {
	switch d.By {
	case control.ByIsolation:
		text := strings.Join(d.Policies, ", ")
		if d.MorePolicies > 0 {
			text += fmt.Sprintf(" and %d more", d.MorePolicies)
		}
		return text
	case control.ByRule:
		rule := d.Policy + " " + model.TitledRule(d.Rule, d.RuleName)
		if d.Rejected {
			rule += " (rejected)"
		}
		return rule
	case control.ByClosed:
		return "closed: " + d.Reason
	case control.ByNoService:
		return "no policy: no service has this address"
	case control.ByNoEndpoint:
		return strings.TrimSpace("no policy: no endpoint of Service " + d.Service)
	case control.ByNoPort:
		return strings.TrimSpace("no policy: no such port of Service " + d.Service)
	case control.ByNoLocalEndpoint:
		return strings.TrimSpace("no policy: no endpoint on this node (policy Local) of Service " + d.Service)
	case control.BySourceRanges:
		return strings.TrimSpace("no policy: sender not in the source ranges of Service " + d.Service)
	}
	return "no policy that is in force by now"
}
