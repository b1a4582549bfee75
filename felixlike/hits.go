package felixlike

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
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
)

// sampleEvery is how often counters are read once somebody has asked for them, so
// that the time of a hit is known. Of a table with fifty thousand rules that takes
// a third of a second.
const sampleEvery = 30 * time.Second

// sampler remembers the counters, so that the time of a hit is known.
type sampler struct {
	asked chan struct{}

	mu    sync.Mutex
	since time.Time
	last  map[backend.RuleKey]control.RuleHits
}

func newSampler() *sampler {
	return &sampler{asked: make(chan struct{}, 1), last: map[backend.RuleKey]control.RuleHits{}}
}

// note takes in what was read, and adds when each rule was hit last.
func (s *sampler) note(at time.Time, read backend.Counted) (all []control.RuleHits, since time.Time) {
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
	var counting backend.Backend
	names := map[policyflows.RuleID]backend.RuleKey{}
	err := d.ask(ctx, func() {
		out.Backend, counting = d.backend.Name(), d.backend
		for id, p := range d.tracker.policies {
			for _, direction := range model.Directions() {
				for i, r := range p.Rules(direction) {
					names[policyflows.RuleID{Policy: id, Direction: direction, Index: i}] = backend.RuleKey{Policy: id.String(), Rule: r.Name}
				}
			}
		}
	})
	if err != nil {
		return out, err
	}
	counted := backend.Counted{}
	for _, key := range names {
		counted[key] = control.RuleHits{Policy: key.Policy, Rule: key.Rule}
	}
	if err := counting.Hits(ctx, counted, names); err != nil {
		return out, fmt.Errorf("read the counters of %s: %w", out.Backend, err)
	}
	out.At = time.Now()
	out.Rules, out.Since = d.sampler.note(out.At, counted)
	return out, nil
}
