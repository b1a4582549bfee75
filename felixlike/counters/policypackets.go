package counters

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/model"
)

// countTimeout bounds a read of the counters of all rules: less than Prometheus waits.
const countTimeout = 5 * time.Second

// policyPackets sums the packets that policy allowed and denied. The sums never fall: they keep
// the packets of counters that are gone. Packets between the last read of a counter and its end
// are not counted.
type policyPackets struct {
	// mu is held from a read to its sum: of two scrapes at once, the older read must not be
	// added after the newer one.
	mu   sync.Mutex
	last map[packetCounter]uint64
	gone map[metrics.PolicyPackets]uint64
}

// packetCounter identifies a counter of the dataplane, of a backend or of the policies of the node itself.
type packetCounter struct {
	of      metrics.PolicyPackets
	backend string
	key     backend.RuleKey
}

func newPolicyPackets() *policyPackets {
	p := &policyPackets{gone: map[metrics.PolicyPackets]uint64{}}
	for _, d := range model.Directions() {
		for _, a := range []model.Action{model.Allow, model.Deny} {
			p.gone[metrics.PolicyPackets{Direction: d.String(), Action: a.String()}] = 0
		}
	}
	return p
}

// sum reads the counters of the dataplane, and returns the sums.
func (p *policyPackets) sum(read func() (map[packetCounter]uint64, error)) (map[metrics.PolicyPackets]uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, err := read()
	if err != nil {
		return nil, err
	}
	return p.addLocked(now), nil
}

// addLocked adds the counters that the dataplane has now. Several kernel rules may share a
// counter here. So one that fell lost what it fell by, at least.
func (p *policyPackets) addLocked(now map[packetCounter]uint64) map[metrics.PolicyPackets]uint64 {
	for c, before := range p.last {
		p.gone[c.of] += before - min(now[c], before)
	}
	p.last = now
	sums := map[metrics.PolicyPackets]uint64{}
	for of, packets := range p.gone {
		sums[of] = packets
	}
	for c, packets := range now {
		sums[c.of] += packets
	}
	return sums
}

// policyPackets returns the sums of the packets that policy decided.
func (s *Counters) policyPackets(ctx context.Context) (map[metrics.PolicyPackets]uint64, error) {
	return s.packets.sum(func() (map[packetCounter]uint64, error) { return s.readPackets(ctx) })
}

// readPackets reads the counters of the backend in force, and of the policies of the node itself.
func (s *Counters) readPackets(ctx context.Context) (map[packetCounter]uint64, error) {
	from, err := s.counting(ctx)
	if err != nil {
		return nil, err
	}
	now := map[packetCounter]uint64{}
	for _, c := range from {
		rules, counted := c.rules(), backend.Counted{}
		for key := range rules {
			counted[key] = control.RuleHits{}
		}
		for _, d := range model.Directions() {
			counted[backend.DeniedKey(d)], counted[backend.RejectedKey(d)] = control.RuleHits{}, control.RuleHits{}
		}
		if err := c.hits(ctx, counted, c.policies); err != nil {
			return nil, err
		}
		count := func(d string, a model.Action, key backend.RuleKey, packets uint64) {
			if packets > 0 {
				now[packetCounter{metrics.PolicyPackets{Direction: d, Action: a.String()}, c.name, key}] = packets
			}
		}
		for key, h := range counted {
			r, known := rules[key]
			switch {
			case !known: // of a key of DeniedKey or RejectedKey
				direction, _, _ := strings.Cut(key.Rule, " ")
				count(direction, model.Deny, key, h.Connections)
			case r.action == model.Allow:
				count(r.direction.String(), model.Allow, key, h.Connections)
			}
		}
	}
	return now, nil
}
