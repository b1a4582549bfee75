package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/ovsfwd/ovsdaemon"
	"github.com/felixlike/felixlike/test/bench"
	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/measure"
	"github.com/felixlike/felixlike/test/workloads"
)

// asWorker makes this test binary the process that is measured.
const asWorker = "as-worker"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == asWorker {
		if err := worker.Run(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// steps records the progress of a run.
type steps struct {
	cases []string
	// at is called with each case.
	at func(string)
}

func (s *steps) Turn(round, _ int, backend string) {
	s.cases = append(s.cases, fmt.Sprintf("round %d %s:", round, backend))
}

func (s *steps) Case(name string) {
	s.cases = append(s.cases, name)
	s.at(name)
}

func (s *steps) Done() {}

// usable returns the backends that this machine has the tools and the kernel
// for, and logs why it leaves out others.
func usable(t *testing.T) []worker.Backend {
	t.Helper()
	ns, err := namespace.Anonymous()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	return slices.DeleteFunc(worker.Backends(), func(b worker.Backend) bool {
		if b.NeedsSwitch {
			err := ovsdaemon.Available()
			if err != nil {
				t.Logf("%s is left out: %v", b.Name, err)
			}
			return err != nil
		}
		for _, tool := range b.Tools {
			cmd := exec.Command(tool.Save[0], tool.Save[1:]...)
			err := ns.Do(cmd.Start)
			if err == nil {
				err = cmd.Wait()
			}
			if err == nil {
				_, err = exec.LookPath(tool.Load[0])
			}
			if err != nil {
				t.Logf("%s is left out: %s: %v", b.Name, strings.Join(tool.Save, " "), err)
				return true
			}
		}
		return false
	})
}

func smallRun(t *testing.T, rounds int) (bench.Config, *steps) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	backends := usable(t)
	if len(backends) == 0 {
		t.Skip("no backend can be measured")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	profile, err := workload.FindProfile("small")
	if err != nil {
		t.Fatal(err)
	}
	profile.Idle = 20 * time.Millisecond
	s := &steps{at: func(string) {}}
	return bench.Config{
		Parts:   []bench.Part{bench.Programming},
		Profile: profile, Backends: backends, Rounds: rounds, Worker: []string{program, asWorker},
		Command: "the test", Progress: s,
	}, s
}

func TestSmallRun(t *testing.T) {
	cfg, progress := smallRun(t, 2)
	r, err := bench.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Calibration) != 1+2*(len(cfg.Backends)+1) || r.Calibration.Min() <= 0 {
		t.Errorf("calibration %v", r.Calibration)
	}
	for _, b := range cfg.Backends {
		t.Run(b.Name, func(t *testing.T) { checkResults(t, r, b) })
		for round := 1; round <= 2; round++ {
			if want := fmt.Sprintf("round %d %s: first-load tool-load restart", round, b.Name); !strings.Contains(strings.Join(progress.cases, " "), want) {
				t.Errorf("progress %v lacks %q", progress.cases, want)
			}
		}
	}
	if f := r.Find("", worker.ManifestsRead); f == nil || f.Latency.Count != 2 || f.CPU.Min() <= 0 {
		t.Errorf("the reading of manifests: %+v", f)
	}
	if len(r.Engine) != len(workloads.All())*len(workloads.Placements()) {
		t.Errorf("%d results of the policy engine", len(r.Engine))
	}
	for _, e := range r.Engine {
		if len(e.EngineCPU) != 2 || e.ProcessCPU.Min() <= 0 || e.PeakRSS.Min() <= 0 || e.Pods == 0 || e.Work == 0 || e.Antrea != nil {
			t.Errorf("policy engine, %s %s: %+v", e.Workload, e.Placement, e)
		}
	}
	checkDecodes(t, r)
}

// checkDecodes wants a report to come out of JSON as it went in.
func checkDecodes(t *testing.T, r *bench.Report) {
	t.Helper()
	var text strings.Builder
	if err := r.JSON(&text); err != nil {
		t.Fatal(err)
	}
	again, err := bench.Decode([]byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, again); diff != "" {
		t.Errorf("another report comes out of JSON (-before +after):\n%s", diff)
	}
}

func checkResults(t *testing.T, r *bench.Report, b worker.Backend) {
	t.Helper()
	// The least is one a round.
	few := func(n int64) int64 { return max(2, n/int64(b.Sparing)) }
	counts := map[worker.Case]int64{
		worker.FirstLoad: 2, worker.ToolLoad: 2, worker.Restart: 2, worker.Recheck: 6, worker.Idle: 1,
		worker.RuleChanged: max(4, few(40)), worker.ElementAdded: 40, worker.ElementRemoved: 40,
		worker.EndpointAdded: few(10), worker.EndpointRemoved: few(10), worker.PolicyAdded: few(4), worker.PolicyRemoved: few(4),
	}
	foreign := map[worker.Case]int64{
		worker.ForeignRule: 4, worker.ForeignChain: 4, worker.ForeignElement: 4, worker.ForeignDispatch: 4, worker.ForeignAll: 2,
	}
	if b.Name == worker.NFTablesMaps {
		// Rules are elements there, and have no chains.
		delete(foreign, worker.ForeignRule)
		delete(foreign, worker.ForeignChain)
	}
	if b.NeedsSwitch {
		// Rules are flows there, and have no chains.
		delete(foreign, worker.ForeignChain)
		delete(foreign, worker.ForeignAll)
	}
	if b.Foreign != nil {
		maps.Copy(counts, foreign)
	} else if r.CheckEvery[b.Name] == 0 {
		t.Error("foreign changes are neither notified nor looked for")
	}
	for _, c := range slices.Sorted(maps.Keys(counts)) {
		found := r.Find(b.Name, c)
		if found == nil {
			t.Errorf("%s was not measured", c)
			continue
		}
		if found.Latency.Count != counts[c] {
			t.Errorf("%s was measured %d times, want %d", c, found.Latency.Count, counts[c])
		}
		if found.Wall.Min() <= 0 || found.CPU.Min() <= 0 || found.CPUOfLoop.Min() <= 0 || found.Latency.P99 < found.Latency.P50 {
			t.Errorf("%s took no time: %+v", c, found)
		}
		switch writes := found.Writes; c {
		case worker.Restart, worker.Recheck, worker.Idle:
			if writes.Max() != 0 {
				t.Errorf("%s has written: %v", c, writes)
			}
		case worker.ToolLoad:
		case worker.ElementAdded, worker.ElementRemoved:
			want := 1.0
			switch {
			case b.NeedsSwitch:
				want = 2 // a flow for each of the two rules that name the group
			case b.Name == worker.NFTablesMaps:
				want = 2 // in the set of the group, and in the map of identities
			}
			if writes.Min() != want || writes.Max() != want {
				t.Errorf("%s takes %v writes, want %v", c, writes, want)
			}
		default:
			if writes.Min() < 1 {
				t.Errorf("%s has written nothing: %v", c, writes)
			}
		}
		if _, ok := foreign[c]; ok && (found.NotifiedWall.Min() <= 0 || found.NotifiedWall.Max() >= found.Wall.Max()) {
			t.Errorf("%s was notified after %v, of %v", c, found.NotifiedWall, found.Wall)
		}
		checkPrograms(t, found)
	}
}

// checkPrograms checks that the netlink backend starts no program, and that no backend
// reads the kernel's state before a write.
func checkPrograms(t *testing.T, found *bench.Result) {
	t.Helper()
	var saves, restores []float64
	switch {
	case found.Backend == config.NFTables, found.Backend == worker.NFTablesMaps, found.Backend == config.OpenFlow, found.Case == worker.ToolLoad,
		found.Case == worker.ElementAdded, found.Case == worker.ElementRemoved, found.Case == worker.Idle:
		saves, restores = []float64{0}, []float64{0}
	case found.Case == worker.RuleChanged:
		saves, restores = []float64{0}, []float64{1}
	case found.Case == worker.FirstLoad: // IPv4 and, if the kernel has it, IPv6
		saves, restores = []float64{1, 2}, []float64{1, 2}
	case found.Case == worker.Restart, found.Case == worker.Recheck:
		saves, restores = []float64{1, 2}, []float64{0}
	default:
		saves, restores = []float64{0}, []float64{1, 2}
	}
	for _, c := range []struct {
		what string
		got  measure.Series
		want []float64
	}{{"saves", found.Saves, saves}, {"restores", found.Restores, restores}} {
		if c.got.Min() != c.got.Max() || !slices.Contains(c.want, c.got.Max()) {
			t.Errorf("%s: %v %s, want %v", found.Case, c.got, c.what, c.want)
		}
	}
}

func TestWorkerThatFailsIsReported(t *testing.T) {
	cfg, _ := smallRun(t, 1)
	cfg.Worker = []string{"sh", "-c", "echo all is lost >&2; exit 3"}
	_, err := bench.Run(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "round 1, "+cfg.Backends[0].Name) || !strings.Contains(err.Error(), "all is lost") {
		t.Errorf("error %v", err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	cfg, progress := smallRun(t, 1)
	cfg.Profile.Idle = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	progress.at = func(c string) {
		if c == string(worker.Idle) {
			cancel()
		}
	}
	if _, err := bench.Run(ctx, cfg); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestBadConfigIsRefused(t *testing.T) {
	cfg, _ := smallRun(t, 0)
	if _, err := bench.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "rounds") {
		t.Errorf("error %v", err)
	}
	cfg.Rounds, cfg.Backends = 1, nil
	if _, err := bench.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "no backends") {
		t.Errorf("error %v", err)
	}
}

func TestDecodeRefusesOtherVersions(t *testing.T) {
	data, err := json.Marshal(bench.Report{Version: bench.ReportVersion + 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bench.Decode(data); err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("error %v", err)
	}
}
