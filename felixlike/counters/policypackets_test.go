package counters

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/metrics"
)

// TestPolicyPacketsNeverFall: rules and backends go, counters begin again, and the sums do not fall.
func TestPolicyPacketsNeverFall(t *testing.T) {
	allow := metrics.PolicyPackets{Direction: "ingress", Action: "allow"}
	counter := func(b, rule string) packetCounter {
		return packetCounter{allow, b, backend.RuleKey{Policy: "networkpolicy/x/p", Rule: rule}}
	}
	p := newPolicyPackets()
	for i, c := range []struct {
		now  map[packetCounter]uint64
		want uint64
	}{
		{nil, 0},
		{map[packetCounter]uint64{counter("nftables", "ingress[0]"): 10, counter("nftables", "ingress[1]"): 5}, 15},
		{map[packetCounter]uint64{counter("nftables", "ingress[0]"): 12}, 17}, // a rule has gone
		{map[packetCounter]uint64{counter("nftables", "ingress[0]"): 2}, 17},  // programmed again
		{map[packetCounter]uint64{counter("nftables", "ingress[0]"): 3}, 18},  // counts on
		{map[packetCounter]uint64{counter("openflow", "ingress[0]"): 4}, 22},  // another backend
		{nil, 22},
		{map[packetCounter]uint64{counter("nftables", "ingress[0]"): 1}, 23},
	} {
		sums, err := p.sum(func() (map[packetCounter]uint64, error) { return c.now, nil })
		if err != nil || sums[allow] != c.want || len(sums) != 4 {
			t.Errorf("step %d: %v, %v, want %d", i, sums, err, c.want)
		}
	}
}

// TestScrapesAtOnce: a read that is older than the last one adds nothing.
func TestScrapesAtOnce(t *testing.T) {
	allow := metrics.PolicyPackets{Direction: "ingress", Action: "allow"}
	counter := packetCounter{allow, "nftables", backend.RuleKey{Policy: "networkpolicy/x/p", Rule: "ingress[0]"}}
	p := newPolicyPackets()
	const scrapes = 1000
	var packets atomic.Uint64
	var all sync.WaitGroup
	for range scrapes {
		all.Go(func() {
			if _, err := p.sum(func() (map[packetCounter]uint64, error) {
				read := packets.Add(1)
				runtime.Gosched()
				return map[packetCounter]uint64{counter: read}, nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	sums, err := p.sum(func() (map[packetCounter]uint64, error) {
		return map[packetCounter]uint64{counter: packets.Load()}, nil
	})
	if err != nil || sums[allow] != scrapes {
		t.Errorf("%d packets, %v, want %d", sums[allow], err, scrapes)
	}
}
