package bench

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/measure"
	"github.com/felixlike/felixlike/test/workloads"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// ms returns durations in milliseconds.
func ms(values ...float64) []time.Duration {
	var out []time.Duration
	for _, v := range values {
		out = append(out, time.Duration(v*float64(time.Millisecond)))
	}
	return out
}

func cpu(user, system float64) worker.CPU {
	return worker.CPU{User: ms(user)[0], System: ms(system)[0]}
}

// example is a report of a run of three rounds that never was.
func example(t *testing.T) *Report {
	t.Helper()
	profile, err := workload.FindProfile(workload.W1)
	if err != nil {
		t.Fatal(err)
	}
	r := &Report{
		Version: ReportVersion, Command: "felixctl bench run --rounds 3", Profile: profile, Rounds: 3, Took: 187,
		Started: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Backends: []string{"nftables", "iptables-legacy"},
		CheckEvery:  map[string]float64{"iptables-legacy": 90},
		Calibration: measure.Series{0.15, 0.16, 0.15, 0.17},
		Machine: measure.Machine{
			CPU: "A CPU", Cores: 2, Memory: "8000000 kB", Kernel: "6.1.0 x86_64", System: "Debian", Go: "go1.26",
			Revision: "0123456789ab", Tools: map[string]string{"nft": "nftables v1.0.6"}, LoadBefore: "0.01 0.02 0.03", LoadAfter: "1.00 0.50 0.20",
		},
	}
	var turns []turn
	for i, slower := range []float64{1, 1.2, 0.9} {
		add := func(tool string, m worker.Measurement) {
			turns = append(turns, turn{resultKey{"nftables", m.Case}, m, tool, i})
		}
		add("", worker.Measurement{
			Case: worker.FirstLoad, Wall: ms(600 * slower), CPU: cpu(500, 400*slower), Writes: 37549, PeakRSS: 200e6,
			Model: worker.Phase{Wall: ms(150)[0], CPU: cpu(140, 10)}, Rules: 30042, Elements: 12102,
		})
		add("nft -f -", worker.Measurement{Case: worker.ToolLoad, Wall: ms(500 * slower), CPU: cpu(200, 300*slower)})
		add("", worker.Measurement{Case: worker.Restart, Wall: ms(300 * slower), CPU: cpu(200, 101), PeakRSS: 119e6})
		add("", worker.Measurement{Case: worker.RuleChanged, Wall: ms(1, 2, 3, 4*slower), CPU: cpu(6, 2), Writes: 8})
		add("", worker.Measurement{Case: worker.ElementAdded, Wall: ms(0.2, 0.3, 0.4*slower), CPU: cpu(0.6, 0.3), Writes: 3})
		add("", worker.Measurement{Case: worker.ElementRemoved, Wall: ms(0.7, 0.8, 8*slower), CPU: cpu(0.9, 0.3), Writes: 3})
		add("", worker.Measurement{Case: worker.ForeignRule, Wall: ms(0.4, 20*slower), CPU: cpu(3, 0.5), Writes: 2})
		add("", worker.Measurement{Case: worker.ForeignChain, Wall: ms(0.5, 90*slower), CPU: cpu(3, 0.5), Writes: 10})
		add("", worker.Measurement{Case: worker.ForeignAll, Wall: ms(819), Notified: ms(100)[0], CPU: cpu(500, 500), Writes: 37549})
		if i == 2 {
			add("", worker.Measurement{Case: worker.Idle, Wall: ms(60000), CPU: cpu(5, 1)})
		}
		turns = append(turns, xtablesTurns(i, slower)...)
	}
	if r.Results, err = collect(turns, r.Calibration); err != nil {
		t.Fatal(err)
	}
	r.Engine = collectEngine([]engineTurn{
		{engineExample("SmallNamespaces", workloads.EveryPodLocal, 3.2), 0},
		{engineExample("SmallNamespaces", workloads.OneNode, 1.1), 0},
		{engineExample("NetpolPerPod", workloads.EveryPodLocal, 0.4), 0},
		{engineExample("SmallNamespaces", workloads.EveryPodLocal, 2.8), 1},
	}, r.Calibration, 1)
	r.Budgets = evaluate(r)
	r.Enforcement, r.Packets = enforcementExample(t, r.Backends), packetsExample(t, r.Backends)
	return r
}

// packetsExample has two points; the second one is slower under the second
// backend.
func packetsExample(t *testing.T, backends []string) *Packets {
	t.Helper()
	points := []workload.Point{{}, {Policies: 100, Peers: 1000}}
	results := newPacketsResults(backends, points)
	add := func(b string, at workload.Point, kind TrafficKind, slower float64) {
		s := sample{took: time.Second, packets: 15000, cpu: ms(1200)[0], inSwitch: ms(700)[0], first: ms(5 * slower)[0]}
		if kind == Stream {
			s.bytes = int64(1e8 / slower)
		} else {
			s.latencies = slices.Repeat(ms(0.2*slower, 0.3*slower, 4*slower), 1000)
		}
		if err := results.add(b, at, kind, s); err != nil {
			t.Fatal(err)
		}
	}
	for _, slower := range []float64{1, 1.2, 0.9} {
		for _, kind := range TrafficKinds() {
			add(NoBackend, workload.Point{}, kind, slower/2)
			for i, b := range backends {
				for j, at := range points {
					add(b, at, kind, slower*float64(1+i*j))
				}
			}
		}
	}
	return &Packets{Duration: 1, Datapath: "netdev", RulesPerPolicy: 10, Points: points, Results: results.collect()}
}

func enforcementExample(t *testing.T, backends []string) *Enforcement {
	t.Helper()
	e := &Enforcement{Interval: 0.001, Policies: 10, Datapath: "netdev", Datastore: "an API server, by watch"}
	for _, c := range Changes() {
		for _, b := range backends {
			var rounds [][]enforced
			for _, slower := range []float64{1, 1.2, 0.9} {
				var seen []enforced
				for _, d := range ms(60, 62*slower, 70) {
					seen = append(seen, enforced{
						first: d, last: d + time.Millisecond, begun: d - 5*time.Millisecond, programmed: d - time.Millisecond, resolution: time.Millisecond,
					})
				}
				rounds = append(rounds, seen)
			}
			result, err := newEnforcementResult(b, c, rounds)
			if err != nil {
				t.Fatal(err)
			}
			e.Results = append(e.Results, result)
		}
	}
	return e
}

// xtablesTurns are those of a backend that starts programs and receives no
// notifications of foreign changes.
func xtablesTurns(slot int, slower float64) []turn {
	var turns []turn
	for _, m := range []worker.Measurement{
		{Case: worker.FirstLoad, Wall: ms(1600 * slower), CPU: cpu(900, 600*slower), Writes: 40000, Saves: 2, Restores: 2, PeakRSS: 150e6, Rules: 33000, Elements: 10000},
		{Case: worker.ToolLoad, Wall: ms(1000), CPU: cpu(500, 400)},
		{Case: worker.Restart, Wall: ms(500 * slower), CPU: cpu(300, 101), Saves: 2, PeakRSS: 140e6},
		{Case: worker.Recheck, Wall: ms(400, 400), CPU: cpu(300, 100), Saves: 4},
		{Case: worker.RuleChanged, Wall: ms(150, 160*slower), CPU: cpu(100, 150).Add(worker.CPU{Started: ms(200)[0]}), Writes: 2, Restores: 2 + slot/2},
		{Case: worker.ElementAdded, Wall: ms(0.2, 0.3, 0.4*slower), CPU: cpu(0.6, 0.3), Writes: 3},
		{Case: worker.Idle, Wall: ms(20000), CPU: cpu(5, 1)},
	} {
		tool := ""
		if m.Case == worker.ToolLoad {
			tool = "ipset restore + iptables-legacy-restore + ip6tables-legacy-restore"
		}
		turns = append(turns, turn{resultKey{"iptables-legacy", m.Case}, m, tool, slot})
	}
	return turns
}

func engineExample(name string, p workloads.Placement, cpu float64) workloads.Measurement {
	return workloads.Measurement{
		Workload: name, Placement: p, Namespaces: 25000, Pods: 100000, Policies: 75000,
		EngineCPU: cpu * 0.8, EngineWall: ms(cpu * 900)[0], ProcessCPU: cpu, PeakRSS: 801e6,
	}
}

func TestRenderings(t *testing.T) {
	r := example(t)
	for _, c := range []struct {
		file  string
		write func(io.Writer) error
	}{{"report.txt", r.Text}, {"report.md", r.Markdown}, {"report.json", r.JSON}} {
		var b strings.Builder
		if err := c.write(&b); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", c.file)
		if *update {
			if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), b.String()); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", path, diff)
		}
	}
}

func TestBudgets(t *testing.T) {
	r := example(t)
	verdicts := map[string]bool{}
	for _, b := range r.Budgets {
		if b.Backend == "iptables-legacy" {
			b.What = "iptables-legacy: " + b.What
		}
		verdicts[b.What] = b.Met
	}
	for what, want := range map[string]bool{
		"an element into a set, p50":          true,
		"an element out of a set, p50":        false,
		"an element out of a set, p99":        false,
		"one rule of one policy changed, CPU": true, // exactly the budget
		"restart with nothing changed, CPU":   true,

		"foreign change of a rule -> repaired, max":                                          true,
		"foreign change of a chain -> repaired, max":                                         false,
		"all deleted, from its event to the repair, as a multiple of the slowest first load": true,

		"SmallNamespaces with all pods on the node, CPU of the process": true,
		"SmallNamespaces with all pods on the node, peak RSS":           false,
		"NetpolPerPod with all pods on the node, CPU of the process":    true,
		"iptables-legacy: one rule of one policy changed, saves":        true,
		"iptables-legacy: one rule of one policy changed, restores":     false, // three of two changes in the last round
		"iptables-legacy: an element into a set, programs started":      true,
		"iptables-legacy: an element out of a set, programs started":    false, // not measured
		"iptables-legacy: first load beside the kernel's tools, wall":   false,

		"restart with nothing changed, peak RSS":     true,
		"restart with nothing changed, writes":       true,
		"first load beside the kernel's tools, wall": true,
		"first load beside the kernel's tools, CPU":  false, // 1.8 in the first round
	} {
		if met, ok := verdicts[what]; !ok || met != want {
			t.Errorf("%s: met %v (known %v), want %v", what, met, ok, want)
		}
	}
	for i := range r.Results {
		if r.Results[i].Case == worker.Restart {
			r.Results[i].Writes = measure.Series{0, 0, 1}
		}
	}
	for _, b := range evaluate(r) {
		if b.What == "restart with nothing changed, writes" && (b.Met || b.Measured != "1") {
			t.Errorf("one round has written: %+v", b)
		}
	}
	r.Results, r.Engine = nil, nil
	for _, b := range evaluate(r) {
		if b.Met || b.Measured != "not measured" {
			t.Errorf("a budget of which nothing was measured: %+v", b)
		}
	}
	r.Profile.Name = "small"
	if got := evaluate(r); got != nil {
		t.Errorf("budgets of the reference workload for another: %v", got)
	}
}

func TestSeries(t *testing.T) {
	s := measure.Series{3, 1, 2}
	if s.Median() != 2 || s.Min() != 1 || s.Max() != 3 || (measure.Series{1, 2}).Median() != 1.5 || (measure.Series{}).Median() != 0 {
		t.Error("median or ends are wrong")
	}
	if got := (measure.Series{4, 9}).Over(measure.Series{2, 3, 5}); !cmp.Equal(got, measure.Series{2, 3}) {
		t.Errorf("ratio %v", got)
	}
}

func TestDigits(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.00412: "0.0041", 0.5123: "0.512", 1.005: "1.00", 12.34: "12.3", 2: "2", 123.4: "123", 37549: "37,549", 1234567.8: "1,234,568",
	} {
		if got := measure.Digits(v); got != want {
			t.Errorf("%v is printed %s, want %s", v, got, want)
		}
	}
	for v, want := range map[float64]string{0.00051: "0.510 ms", 0.6: "600 ms", 1.5: "1.50 s", 187: "3m7s"} {
		if got := measure.Duration(v); got != want {
			t.Errorf("%v s is printed %s, want %s", v, got, want)
		}
	}
}
