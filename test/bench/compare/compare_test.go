package compare

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/test/bench"
	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/measure"
)

const threshold = 0.1

// machine makes reports of one machine: how fast it is, and how noisy.
type machine struct {
	*rand.Rand
	slow, noise float64
}

func newMachine(seed uint64, slow, noise float64) machine {
	return machine{rand.New(rand.NewPCG(seed, 1)), slow, noise}
}

func (m machine) rounds(n int, v float64) measure.Series {
	var out measure.Series
	for range n {
		out = append(out, v*math.Exp(m.NormFloat64()*m.noise))
	}
	return out
}

// report has the cases of one change under two backends. Change multiplies the time of
// rule-changed under nftables.
func (m machine) report(n int, change float64) *bench.Report {
	r := &bench.Report{
		Version: bench.ReportVersion, Rounds: n, Backends: []string{"nftables", "openflow"}, Profile: workload.Profile{Name: "small", Endpoints: 20},
		Calibration: measure.Series{0.15 * m.slow, 0.151 * m.slow, 0.149 * m.slow},
	}
	for _, b := range r.Backends {
		for _, c := range append(bench.ChangeCases(), bench.ForeignCases()...) {
			by := m.slow
			if b == "nftables" && c == worker.RuleChanged {
				by *= change
			}
			f := bench.Result{Backend: b, Case: c, Wall: m.rounds(n, 0.01*by), CPU: m.rounds(n, 0.008*by), PeakRSS: m.rounds(n, 1e8), Writes: make(measure.Series, n)}
			for _, v := range f.CPU {
				f.CPUOfLoop = append(f.CPUOfLoop, v/(0.15*m.slow))
			}
			f.Latency = measure.Latency{P50: 0.01 * by, P99: 0.03 * by, Count: 100, P50Rounds: m.rounds(n, 0.01*by), P99Rounds: m.rounds(n, 0.03*by)}
			r.Results = append(r.Results, f)
		}
	}
	return r
}

func compared(t *testing.T, before, after *bench.Report) *Comparison {
	t.Helper()
	c, err := Compare(before, after, threshold)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNoiseIsNoChange(t *testing.T) {
	for _, n := range []int{3, 5, 8} {
		for _, noise := range []float64{0.01, 0.05, 0.2} {
			alarms, all := 0, 0
			for seed := range uint64(20) {
				c := compared(t, newMachine(2*seed, 1, noise).report(n, 1), newMachine(2*seed+1, 1, noise).report(n, 1))
				alarms += c.Count(Better) + c.Count(Worse)
				all += len(c.Changes)
			}
			// The test alone is wrong one time in twenty.
			if share := float64(alarms) / float64(all); share > 0.07 {
				t.Errorf("%d rounds, noise %v: %d of %d figures have changed", n, noise, alarms, all)
			}
		}
	}
}

func TestChangeIsFound(t *testing.T) {
	for _, n := range []int{3, 5} {
		for seed := range uint64(20) {
			for change, want := range map[float64]Verdict{1.6: Worse, 0.6: Better} {
				c := compared(t, newMachine(2*seed, 1, 0.05).report(n, 1), newMachine(2*seed+1, 1, 0.05).report(n, change))
				found := 0
				for _, k := range c.Changes {
					if k.What == bench.Words(worker.RuleChanged) && k.Backend == "nftables" && k.Verdict == want {
						found++
					}
				}
				if found != 4 || !c.Changed() || c.Changes[0].What != bench.Words(worker.RuleChanged) {
					t.Errorf("%d rounds, seed %d, %v times: %d of 4 figures found; first %+v", n, seed, change, found, c.Changes[0])
				}
			}
		}
	}
}

// A machine that is slower by a third changes nothing, and hides nothing.
func TestMachineIsCorrectedFor(t *testing.T) {
	before := newMachine(1, 1, 0.01).report(5, 1)
	if c := compared(t, before, newMachine(2, 1.33, 0.01).report(5, 1)); c.Changed() || math.Abs(c.LoopRatio-1.33) > 0.01 {
		t.Errorf("loop %v: %+v", c.LoopRatio, c.Changes[0])
	}
	if c := compared(t, before, newMachine(2, 1.33, 0.01).report(5, 1/1.33)); c.Count(Better) != 4 || c.Count(Worse) != 0 {
		t.Errorf("%d better, %d worse: %+v", c.Count(Better), c.Count(Worse), c.Changes[0])
	}
	after := newMachine(2, 1.33, 0.01).report(5, 1)
	after.Calibration = nil
	c := compared(t, before, after)
	if !c.Changed() || !strings.Contains(strings.Join(c.Warnings, "\n"), "calibrationCPUSeconds: not in both reports") {
		t.Errorf("no loop: %v", c.Warnings)
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name            string
		before, after   measure.Series
		judged, changed bool
	}{
		{"one round", measure.Series{1}, measure.Series{9}, false, false},
		{"ranges meet", measure.Series{1, 2, 3}, measure.Series{3, 4, 5}, true, false},
		{"ranges are near", measure.Series{1, 1.01, 1.02}, measure.Series{1.1, 1.3, 1.3}, true, false},
		{"ranges are apart", measure.Series{1, 1.01, 1.02}, measure.Series{1.2, 1.3, 1.3}, true, true},
		{"lower", measure.Series{2, 2.1}, measure.Series{1, 1.1}, true, true},
		{"from nothing", measure.Series{0, 0, 0}, measure.Series{5, 5, 5}, true, true},
		{"nothing", measure.Series{0, 0, 0}, measure.Series{0, 0, 0}, true, false},
		{"tested, small", measure.Series{1, 1.001, 1.002, 1.003, 1.004}, measure.Series{1.05, 1.051, 1.052, 1.053, 1.054}, true, false},
		{"tested", measure.Series{1, 1.1, 0.9, 1.05, 1}, measure.Series{1.3, 1.09, 1.4, 1.5, 1.6}, true, true},
		{"tested, one outlier", measure.Series{1, 1, 1, 1, 1}, measure.Series{1, 1, 1, 1, 9}, true, false},
	} {
		if j := judge(c.before, c.after, threshold); j.judged != c.judged || j.changed != c.changed {
			t.Errorf("%s: %+v", c.name, j)
		}
	}
}

func TestIncomparableReportsAreNamed(t *testing.T) {
	before := newMachine(1, 1, 0.01).report(3, 1)
	after := newMachine(2, 1, 0.01).report(3, 1)
	after.Profile.Endpoints = 1000
	if _, err := Compare(before, after, threshold); err == nil || !strings.Contains(err.Error(), "programming: profile.endpoints: 20 and 1000") {
		t.Errorf("other endpoints: %v", err)
	}
	packets := func(datapath string) *bench.Packets {
		return &bench.Packets{Datapath: datapath, Results: []bench.PacketsResult{{Backend: "nftables", Kind: bench.Stream, PerSecond: measure.Series{1, 1, 1}}}}
	}
	after.Profile.Endpoints = 20
	before.Packets, after.Packets = packets("netdev"), packets("system")
	c := compared(t, before, after)
	if len(c.Refused) != 1 || c.Refused[0] != "packets: packets.datapath: netdev and system" {
		t.Errorf("other datapath: %v", c.Refused)
	}
	after.Packets = packets("netdev")
	after.Packets.Floor = bench.PlainVeth
	if c := compared(t, before, after); len(c.Refused) != 1 || c.Refused[0] != "packets: packets.floor:  and veth" {
		t.Errorf("other floor: %v", c.Refused)
	}
	after.Packets.Floor = ""
	after.Packets.Results[0].PerSecond = measure.Series{2, 2, 2}
	if k := compared(t, before, after).Changes[0]; k.Verdict != Better || k.Words != "higher rate" || k.Ratio < 1.99 {
		t.Errorf("twice the throughput: %+v", k)
	}
	after.Machine.Kernel, after.Backends = "6.1", []string{"nftables"}
	all := strings.Join(compared(t, before, after).Warnings, "\n")
	for _, want := range []string{"machine.kernel:  and 6.1", "backends: openflow only in the old report"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in %s", want, all)
		}
	}
	for _, bad := range []float64{-0.1, math.NaN(), math.Inf(1)} {
		if _, err := Compare(before, after, bad); err == nil {
			t.Errorf("threshold %v is taken", bad)
		}
	}
}

func TestText(t *testing.T) {
	c := compared(t, newMachine(1, 1, 0.02).report(5, 1), newMachine(2, 1, 0.02).report(5, 2))
	var text, markdown, data strings.Builder
	if err := c.Text(&text, terminal.Style{}, false); err != nil {
		t.Fatal(err)
	}
	if err := c.Markdown(&markdown, true); err != nil {
		t.Fatal(err)
	}
	if err := c.JSON(&data); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"one rule of a policy changed", "slower", "more CPU", "p=0.008, 5+5 rounds", "0 better, 4 worse", "--all shows every one"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if n := strings.Count(text.String(), "rounds\n"); n != 4 {
		t.Errorf("%d rows in\n%s", n, text.String())
	}
	if n := strings.Count(markdown.String(), "\n| "); n != len(c.Changes)+2 {
		t.Errorf("%d lines of a table for %d figures", n, len(c.Changes))
	}
	var back Comparison
	if err := json.Unmarshal([]byte(data.String()), &back); err != nil || len(back.Changes) != len(c.Changes) {
		t.Errorf("JSON: %v", err)
	}
}

// FuzzCompare: reports that decode can be compared and printed.
func FuzzCompare(f *testing.F) {
	one := []byte(`{"version":2,"backends":["nftables"],"results":[{"backend":"nftables","case":"restart","cpuSeconds":{"rounds":[1,2]},"writes":{"rounds":[0,0]}}]}`)
	f.Add(one, one)
	f.Add(one, []byte(`{"version":2,"backends":["nftables"],"calibrationCPUSeconds":{"rounds":[1e-320]},"results":[{"backend":"nftables","case":"restart","cpuSeconds":{"rounds":[1e308,-1]}}]}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		before, err := bench.Decode(a)
		if err != nil {
			return
		}
		after, err := bench.Decode(b)
		if err != nil {
			return
		}
		c, err := Compare(before, after, threshold)
		if err != nil {
			return
		}
		var out strings.Builder
		if err := c.JSON(&out); err != nil {
			t.Errorf("write as JSON: %v", err)
		}
		if err := c.Text(&out, terminal.Style{}, true); err != nil {
			t.Error(err)
		}
	})
}
