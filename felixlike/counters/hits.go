// Package counters reads the packets and connections that the rules of policies have counted: for people (Hits) and for metrics. It is tested here
// by what it does with numbers, and with packets in test/e2e.
package counters

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/model"
)

// sampleEvery is the time between two reads of the counters, from the first request for them
// on. The reads give the time of a hit. For a table with fifty thousand rules, one takes a
// third of a second.
const sampleEvery = 30 * time.Second

// Counters keeps the last counters, to find the time of a hit.
type Counters struct {
	// Hosts adds the counters of the rules of policies of the node itself. It may be nil.
	Hosts func(ctx context.Context, counted backend.Counted, policies []*model.Policy) error

	view    *driver.View
	asked   chan struct{}
	packets *policyPackets

	mu    sync.Mutex
	since time.Time
	last  map[backend.RuleKey]control.RuleHits
}

// New returns Counters that have read nothing yet.
func New(v *driver.View) *Counters {
	return &Counters{view: v, asked: make(chan struct{}, 1), packets: newPolicyPackets(), last: map[backend.RuleKey]control.RuleHits{}}
}

// Module returns the module of the counters.
func (s *Counters) Module() driver.Module {
	return driver.Module{Run: s.sample, Count: func(m *metrics.Metrics) {
		m.CountPolicyPackets(func() (map[metrics.PolicyPackets]uint64, error) {
			ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
			defer cancel()
			return s.policyPackets(ctx)
		})
	}}
}

// note stores the counters, and adds the time of each rule's last hit.
func (s *Counters) note(at time.Time, read backend.Counted) (all []control.RuleHits, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.since.IsZero()
	if first {
		s.since = at
	}
	for k, h := range read {
		before, known := s.last[k]
		h.Last = before.Last
		// A counter that fell belongs to a rule that was programmed again.
		if grew := h.Connections != before.Connections || sum(h.Packets) != sum(before.Packets); grew && !first && (known || !h.Never()) && !h.Never() {
			h.Last = at
		}
		read[k] = h
	}
	s.last = read
	for _, k := range slices.SortedFunc(maps.Keys(read), func(a, b backend.RuleKey) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(len(a.Rule), len(b.Rule)), cmp.Compare(a.Rule, b.Rule))
	}) {
		all = append(all, read[k])
	}
	return all, s.since
}

func sum(n *uint64) uint64 {
	if n == nil {
		return 0
	}
	return *n
}

// sample reads the counters every sampleEvery, from the first request on.
func (s *Counters) sample(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.asked:
	}
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if _, err := s.read(ctx); err != nil {
				s.view.Log().Debug("counters not read", "error", err)
			}
		}
	}
}

// Hits reads the counters, and samples them from now on.
func (s *Counters) Hits(ctx context.Context) (control.Hits, error) {
	select {
	case s.asked <- struct{}{}:
	default: // sample runs already
	}
	return s.read(ctx)
}

func (s *Counters) read(ctx context.Context) (control.Hits, error) {
	out := control.Hits{Node: s.view.Node()}
	from, err := s.counting(ctx)
	if err != nil {
		return out, err
	}
	out.Backend = from[0].name
	all := backend.Counted{}
	for _, c := range from {
		counted := backend.Counted{}
		for key, r := range c.rules() {
			counted[key] = control.RuleHits{Policy: key.Policy, Rule: key.Rule, RuleName: r.title, Node: c.node}
		}
		if err := c.hits(ctx, counted, c.policies); err != nil {
			return out, fmt.Errorf("read the counters of %s: %w", c.name, err)
		}
		maps.Copy(all, counted) // a policy is for pods or for nodes
	}
	out.At = time.Now()
	out.Rules, out.Since = s.note(out.At, all)
	return out, nil
}

// counting are policies with the function that reads their counters. Its name is that of the backend, or hosts for the policies of
// the node itself.
type counting struct {
	name     string
	node     bool
	hits     func(ctx context.Context, counted backend.Counted, policies []*model.Policy) error
	policies []*model.Policy
}

// counting returns the policies of pods, and then those of the node itself if there are any.
func (s *Counters) counting(ctx context.Context) (all []counting, err error) {
	err = s.view.Do(ctx, func() {
		b, m := s.view.Backend(), s.view.Model()
		all = append(all, counting{name: b.Name(), hits: b.Hits, policies: slices.Collect(maps.Values(m.Policies))})
		if s.Hosts != nil && !m.HostPolicies.Empty() {
			all = append(all, counting{name: backend.HostsStage, node: true, hits: s.Hosts, policies: m.HostPolicies.Policies})
		}
	})
	return all, err
}

// countedRule is what the counters of a rule need to know.
type countedRule struct {
	direction model.Direction
	action    model.Action
	title     string
}

func (c *counting) rules() map[backend.RuleKey]countedRule {
	all := map[backend.RuleKey]countedRule{}
	for _, p := range c.policies {
		for _, d := range model.Directions() {
			for _, r := range p.Rules(d) {
				all[backend.RuleKey{Policy: p.ID.String(), Rule: r.Name}] = countedRule{d, r.Action, r.Title}
			}
		}
	}
	return all
}
