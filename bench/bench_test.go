package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/bench"
	"github.com/felixlike/felixlike/bench/worker"
	"github.com/felixlike/felixlike/bench/workload"
	"github.com/felixlike/felixlike/policy/workloads"
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

// steps notes what a run tells of its progress.
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

func smallRun(t *testing.T, rounds int) (bench.Config, *steps) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("no nft: ", err)
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
		Profile: profile, Backends: worker.Backends(), Rounds: rounds, Worker: []string{program, asWorker},
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
		checkResults(t, r, b.Name)
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

func checkResults(t *testing.T, r *bench.Report, backend string) {
	t.Helper()
	for c, count := range map[worker.Case]int64{
		worker.FirstLoad: 2, worker.ToolLoad: 2, worker.Restart: 2, worker.Recheck: 6, worker.Idle: 1,
		worker.RuleChanged: 40, worker.ElementAdded: 40, worker.ElementRemoved: 40,
		worker.ForeignRule: 4, worker.ForeignChain: 4, worker.ForeignElement: 4, worker.ForeignDispatch: 4, worker.ForeignAll: 2,
		worker.EndpointAdded: 10, worker.EndpointRemoved: 10, worker.PolicyAdded: 4, worker.PolicyRemoved: 4,
	} {
		found := r.Find(backend, c)
		if found == nil {
			t.Errorf("%s: %s was not measured", backend, c)
			continue
		}
		if found.Latency.Count != count {
			t.Errorf("%s: %s was measured %d times, want %d", backend, c, found.Latency.Count, count)
		}
		if found.Wall.Min() <= 0 || found.CPU.Min() <= 0 || found.CPUOfLoop.Min() <= 0 || found.Latency.P99 < found.Latency.P50 {
			t.Errorf("%s: %s took no time: %+v", backend, c, found)
		}
		switch writes := found.Writes; c {
		case worker.Restart, worker.Recheck, worker.Idle:
			if writes.Max() != 0 {
				t.Errorf("%s: %s has written: %v", backend, c, writes)
			}
		case worker.ToolLoad:
		case worker.ElementAdded, worker.ElementRemoved:
			if writes.Min() != 1 || writes.Max() != 1 {
				t.Errorf("%s: %s takes %v writes, want 1", backend, c, writes)
			}
		default:
			if writes.Min() < 1 {
				t.Errorf("%s: %s has written nothing: %v", backend, c, writes)
			}
		}
	}
}

func TestWorkerThatFailsIsReported(t *testing.T) {
	cfg, _ := smallRun(t, 1)
	cfg.Worker = []string{"sh", "-c", "echo all is lost >&2; exit 3"}
	_, err := bench.Run(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "round 1, nftables") || !strings.Contains(err.Error(), "all is lost") {
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
