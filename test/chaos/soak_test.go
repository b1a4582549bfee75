package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/test/measure"
)

const (
	// warmUp is the part of a soak whose samples do not count: heap and caches grow at first.
	warmUp = 4
	// soakEvery is the time between two samples.
	soakEvery = 5 * time.Second
)

// soakLimit bounds the growth of a measured value over the samples that count, along the line of least squares.
type soakLimit struct {
	name string
	// of reads the value of the agent with this process ID.
	of    func(ctx context.Context, c *cluster, pid int) (float64, error)
	limit float64
	unit  string
}

func soakLimits() []soakLimit {
	metric := func(name string) func(context.Context, *cluster, int) (float64, error) {
		return func(ctx context.Context, c *cluster, _ int) (float64, error) { return c.node.Metric(ctx, name) }
	}
	return []soakLimit{
		{"resident memory of the agent", resident, 10, "MB"},
		{"descriptors of the agent", descriptors, 5, ""},
		{"goroutines of the agent", metric("go_goroutines"), 5, ""},
		{"resident memory of ovs-vswitchd", ofDaemon("ovs-vswitchd", resident), 20, "MB"},
		{"descriptors of ovs-vswitchd", ofDaemon("ovs-vswitchd", descriptors), 5, ""},
		{"resident memory of ovsdb-server", ofDaemon("ovsdb-server", resident), 10, "MB"},
	}
}

func ofDaemon(name string, f func(context.Context, *cluster, int) (float64, error)) func(context.Context, *cluster, int) (float64, error) {
	return func(ctx context.Context, c *cluster, _ int) (float64, error) {
		pid, err := c.ovs.PID(name)
		if err != nil {
			return 0, err
		}
		return f(ctx, c, pid)
	}
}

func resident(_ context.Context, _ *cluster, pid int) (float64, error) {
	usage, err := measure.ProcessUsageOf(pid)
	return float64(usage.RSS) / 1e6, err
}

func descriptors(_ context.Context, _ *cluster, pid int) (float64, error) {
	all, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
	return float64(len(all)), err
}

// TestSoak runs a cluster under traffic and changes of policies, without faults, for as long as -soak says. Memory,
// descriptors and goroutines must not grow. No packet that policy denies arrives, and each kind of allowed traffic passes
// to the end.
func TestSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("runs with -soak only (make test-soak)")
	}
	b := *backend
	if b == "" {
		b = config.NFTables
	}
	c := newCluster(t, b)
	ctx, began := t.Context(), time.Now()
	limits := soakLimits()
	samples, pid := make([][]float64, len(limits)), c.node.AgentPID()
	var at []float64
	for time.Since(began) < *soak {
		pause(ctx, soakEvery)
		c.forget(time.Now().Add(-time.Minute))
		if now := c.node.AgentPID(); now != pid {
			t.Fatalf("the agent has ended: process %d, now %d", pid, now)
		}
		at = append(at, time.Since(began).Seconds())
		for i, l := range limits {
			v, err := l.of(ctx, c, pid)
			if err != nil {
				t.Fatalf("%s: %v", l.name, err)
			}
			samples[i] = append(samples[i], v)
		}
	}
	first := len(at) / warmUp
	for i, l := range limits {
		grown, mean := measure.Growth(at[first:], samples[i][first:])
		line := fmt.Sprintf("%s: %.1f %s on average, %+.1f %s in %.0f s", l.name, mean, l.unit, grown, l.unit, at[len(at)-1]-at[first])
		fmt.Println(line)
		if grown > l.limit {
			t.Errorf("%s: the limit is %.0f", line, l.limit)
		}
	}
	fmt.Printf("%s for %s, %d samples, load %s\n", b, time.Since(began).Round(time.Second), len(at), measure.LoadAverage())
	leaks, err := c.leaks(began)
	if err != nil || len(leaks) > 0 {
		t.Errorf("%d packets that policy denies have arrived, %v", len(leaks), err)
	}
	end := time.Now()
	if !within(ctx, wait, func() bool { return c.passesSince(end) }) {
		t.Error(c.ailing(end))
	}
	for _, a := range c.allowed {
		if err := a.stream.Err(); err != nil {
			t.Error(err)
		}
	}
}
