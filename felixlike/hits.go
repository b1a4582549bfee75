package felixlike

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
)

// sampleEvery is how often counters are read once somebody has asked for them, so
// that the time of a hit is known. Of a table with fifty thousand rules that takes
// a third of a second.
const sampleEvery = 30 * time.Second

// Counted is what the rules of a backend have counted, by policy and rule.
type Counted map[RuleKey]control.RuleHits

// RuleKey names a rule: "shop/db" and "ingress[0]".
type RuleKey struct{ Policy, Rule string }

// add counts packets for a rule by its comment, which is the two names, or as much
// of them as the kernel keeps. A comment that fits no rule, or several, is left out.
func (c Counted) add(comment string, packets uint64) {
	key, found := c.find(comment)
	if found {
		h := c[key]
		h.Connections += packets
		c[key] = h
	}
}

func (c Counted) find(comment string) (RuleKey, bool) {
	policy, rule, _ := strings.Cut(comment, " ")
	if _, known := c[RuleKey{policy, rule}]; known {
		return RuleKey{policy, rule}, true
	}
	var match RuleKey
	matches := 0
	if len(comment) > shortestCut {
		for k := range c {
			if strings.HasPrefix(k.Policy+" "+k.Rule, comment) {
				match = k
				matches++
			}
		}
	}
	return match, matches == 1
}

// shortestCut is less than what the kernel keeps of a comment behind its hash.
const shortestCut = 100

// sampler remembers the counters, so that the time of a hit is known.
type sampler struct {
	asked chan struct{}

	mu    sync.Mutex
	since time.Time
	last  map[RuleKey]control.RuleHits
}

func newSampler() *sampler {
	return &sampler{asked: make(chan struct{}, 1), last: map[RuleKey]control.RuleHits{}}
}

// note takes in what was read, and adds when each rule was hit last.
func (s *sampler) note(at time.Time, read Counted) (all []control.RuleHits, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.since.IsZero()
	if first {
		s.since = at
	}
	for k, h := range read {
		before, known := s.last[k]
		h.Last = before.Last
		// A counter that fell is that of a rule that was programmed anew.
		if grew := h.Connections != before.Connections || sum(h.Packets) != sum(before.Packets); grew && !first && (known || !h.Never()) && !h.Never() {
			h.Last = at
		}
		read[k] = h
	}
	s.last = read
	for _, k := range slices.SortedFunc(maps.Keys(read), func(a, b RuleKey) int {
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

// sample reads counters from time to time, from the first question on.
func (d *Driver) sample(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-d.sampler.asked:
	}
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if _, err := d.readHits(ctx); err != nil {
				d.log.Debug("counters not read", "error", err)
			}
		}
	}
}

// Hits implements control.Agent.
func (d *Driver) Hits(ctx context.Context) (control.Hits, error) {
	select {
	case d.sampler.asked <- struct{}{}:
	default: // it samples already
	}
	return d.readHits(ctx)
}

func (d *Driver) readHits(ctx context.Context) (control.Hits, error) {
	out := control.Hits{Node: d.cfg.Node}
	var read func(context.Context, Counted, map[policyflows.RuleID]RuleKey) error
	names := map[policyflows.RuleID]RuleKey{}
	err := d.ask(ctx, func() {
		out.Backend, read = d.backend.Name, d.backend.Hits
		for id, p := range d.tracker.policies {
			for _, direction := range model.Directions() {
				for i, r := range p.Rules(direction) {
					names[policyflows.RuleID{Policy: id, Direction: direction, Index: i}] = RuleKey{id.String(), r.Name}
				}
			}
		}
	})
	if err != nil {
		return out, err
	}
	if read == nil {
		return out, fmt.Errorf("backend %s does not count", out.Backend)
	}
	counted := Counted{}
	for _, key := range names {
		counted[key] = control.RuleHits{Policy: key.Policy, Rule: key.Rule}
	}
	if err := read(ctx, counted, names); err != nil {
		return out, fmt.Errorf("read the counters of %s: %w", out.Backend, err)
	}
	out.At = time.Now()
	out.Rules, out.Since = d.sampler.note(out.At, counted)
	return out, nil
}
