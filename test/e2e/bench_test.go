package e2e

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/test/bench"
)

// TestBenchPackets has packets measured under several backends, and nothing left
// of the lab that it takes.
func TestBenchPackets(t *testing.T) {
	needLab(t)
	backends := []string{config.NFTables, config.IPTablesNFT}
	out := filepath.Join(t.TempDir(), "packets")
	text, errs, code := felixctl(t, "bench", "packets", "--backends", backends[0]+","+backends[1],
		"--rounds", "1", "--duration", "100ms", "--policies", "2", "-o", "json", "--out", out)
	if code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, text, errs)
	}
	var report bench.Report
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatal(err)
	}
	r := report.Packets
	if r == nil {
		t.Fatalf("no packets in %s", text)
	}
	withoutAgent := []string{bench.NoBackend, bench.Switched, bench.Multitenant, bench.Routed}
	if len(r.Results) != len(bench.TrafficKinds())*(len(backends)+len(withoutAgent)) || r.Datapath != "netdev" {
		t.Fatalf("%d results on datapath %q", len(r.Results), r.Datapath)
	}
	for _, f := range r.Results {
		if f.PerSecond.Median() <= 0 || (f.Kind != "stream" && f.Latency.P50 <= 0) {
			t.Errorf("%s, %s: %v a second, p50 %v s", f.Backend, f.Kind, f.PerSecond, f.Latency.P50)
		}
	}
	for _, file := range []string{out + ".json", out + ".md"} {
		if matches, err := filepath.Glob(file); err != nil || len(matches) == 0 {
			t.Errorf("%s was not written", file)
		}
	}
	labs, err := filepath.Glob("/run/felixlike-lab/bench-*")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range labs {
		// Other benchmarks may run; the name has the process.
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(l), "bench-"))
		if err != nil || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			t.Errorf("left: %s, %v", l, err)
		}
	}
	if _, errs, code := felixctl(t, "bench", "packets", "--backends", "pf"); code != 2 {
		t.Errorf("an unknown backend: exit code %d\n%s", code, errs)
	}
}
