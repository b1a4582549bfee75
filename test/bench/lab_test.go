package bench_test

import "github.com/felixlike/felixlike/test/measure"

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/test/bench"
	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/lab"
)

// buildAgent builds the agent and has it found.
func buildAgent(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, lab.AgentProgram), "../../cmd/"+lab.AgentProgram)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the agent: %v\n%s", err, out)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// labRun is a short run of the parts that need pods, with an agent built for it.
func labRun(t *testing.T) (bench.Config, *steps) {
	t.Helper()
	if testing.Short() {
		t.Skip("a lab takes seconds")
	}
	cfg, s := smallRun(t, 1)
	if err := lab.Available(); err != nil {
		t.Skip(err)
	}
	buildAgent(t)
	cfg.Parts = []bench.Part{bench.EnforcementPart, bench.PacketsPart}
	cfg.Datapath = "netdev"
	cfg.Profile.Points = []workload.Point{{}, {Policies: 2, Peers: 5}}
	cfg.Profile.Traffic = 100 * time.Millisecond
	cfg.Profile.Changes, cfg.Profile.Among = 2, 2
	return cfg, s
}

func TestLabRun(t *testing.T) {
	cfg, progress := labRun(t)
	r, err := bench.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Results != nil || r.Engine != nil || r.Budgets != nil {
		t.Error("there are results on programming, which was not asked for")
	}
	names := []string{}
	for _, b := range cfg.Backends {
		names = append(names, b.Name)
		checkEnforcement(t, r.Enforcement, b.Name)
		checkPackets(t, r.Packets, b.Name, cfg.Profile.Points)
	}
	paths := []string{bench.NoBackend, bench.Switched, bench.Multitenant, bench.Routed}
	for _, path := range paths {
		checkPackets(t, r.Packets, path, cfg.Profile.Points[:1])
	}
	if want := len(bench.TrafficKinds()) * (len(paths) + len(names)*len(cfg.Profile.Points)); len(r.Packets.Results) != want {
		t.Errorf("%d results of packets, want %d", len(r.Packets.Results), want)
	}
	for _, want := range []string{"none: connections parallel-connections round-trips stream", names[0] + ", 2 policies, 5 peers: connections"} {
		if !strings.Contains(strings.Join(progress.cases, " "), want) {
			t.Errorf("progress %v lacks %q", progress.cases, want)
		}
	}
	checkDecodes(t, r)
}

// TestTrafficModes sends packets between two nodes, in both modes.
func TestTrafficModes(t *testing.T) {
	cfg, _ := labRun(t)
	cfg.Parts, cfg.TrafficModes = []bench.Part{bench.PacketsPart}, []string{config.Encap, config.NoEncap}
	cfg.Backends, cfg.Profile.Points = cfg.Backends[:1], cfg.Profile.Points[1:]
	r, err := bench.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Packets.Nodes != 2 {
		t.Errorf("%d nodes in the report", r.Packets.Nodes)
	}
	for _, mode := range cfg.TrafficModes {
		checkPackets(t, r.Packets, cfg.Backends[0].Name+"+"+mode, cfg.Profile.Points)
	}
	checkDecodes(t, r)
}

// checkEnforcement wants every change to be found by the packets, and not long after the agent's word.
func checkEnforcement(t *testing.T, e *bench.Enforcement, backend string) {
	t.Helper()
	for _, c := range bench.Changes() {
		f := e.Find(backend, c)
		if f == nil {
			t.Errorf("%s under %s was not measured", c, backend)
			continue
		}
		if f.First.Count != 2 || f.First.Max <= 0 || f.First.Max > 30 {
			t.Errorf("%s under %s: first found after %+v", c, backend, f.First)
		}
		if f.Last.P50 < f.First.P50 || f.Resolution.P50 <= 0 || f.Resolution.Max > f.First.Max {
			t.Errorf("%s under %s: the last after %+v, resolution %+v", c, backend, f.Last, f.Resolution)
		}
		if f.Begun.Count != 2 || f.Begun.P50 <= 0 || f.Programmed.P50 <= f.Begun.P50 {
			t.Errorf("%s under %s: begun after %+v, programmed after %+v", c, backend, f.Begun, f.Programmed)
		}
	}
}

func checkPackets(t *testing.T, p *bench.Packets, backend string, points []workload.Point) {
	t.Helper()
	for _, at := range points {
		for _, kind := range bench.TrafficKinds() {
			f := p.Find(backend, at, kind)
			if f == nil {
				t.Errorf("%s under %s, %s, was not measured", kind, backend, at)
				continue
			}
			what := fmt.Sprintf("%s under %s, %s", kind, backend, at)
			for name, s := range map[string]measure.Series{
				"rate": f.PerSecond, "packets": f.PacketsPerSecond, "CPU": f.CPU, "CPU of a packet": f.CPUPerPacket, "CPU of an operation": f.CPUPerOperation,
				"CPU of the switch": f.SwitchCPU,
			} {
				if noSwitch := (backend == bench.NoBackend || backend == bench.Routed) && name == "CPU of the switch"; len(s) != 1 || (s[0] > 0) == noSwitch {
					t.Errorf("%s: %s is %v", what, name, s)
				}
			}
			latency := kind != bench.Stream
			if (f.Latency.Count > 0) != latency || latency && (f.Latency.P50 <= 0 || f.Latency.P99 < f.Latency.P50) {
				t.Errorf("%s: latency %+v", what, f.Latency)
			}
			if got := slices.Max(append(f.First, 0)) > 0; got != (kind == bench.Connections) {
				t.Errorf("%s: the first took %v", what, f.First)
			}
		}
	}
}

func TestBadLabConfigIsRefused(t *testing.T) {
	cfg, _ := smallRun(t, 1)
	cfg.Datapath, cfg.Profile.Changes, cfg.Profile.Traffic = "netdev", 1, time.Second
	for want, change := range map[string]func(*bench.Config){
		`part "sleep"`:                   func(c *bench.Config) { c.Parts = []bench.Part{"sleep"} },
		"0 changes":                      func(c *bench.Config) { c.Parts, c.Profile.Changes = []bench.Part{bench.EnforcementPart}, 0 },
		"no numbers of policies":         func(c *bench.Config) { c.Profile.Points = nil },
		"-1 policies":                    func(c *bench.Config) { c.Profile.Points = []workload.Point{{Policies: -1}} },
		"0 peers":                        func(c *bench.Config) { c.Profile.Points = []workload.Point{{Policies: 1}} },
		"no policy that 7 peers":         func(c *bench.Config) { c.Profile.Points = []workload.Point{{Peers: 7}} },
		`traffic mode "vxlan"`:           func(c *bench.Config) { c.TrafficModes = []string{"encap", "vxlan"} },
		"traffic for 0s":                 func(c *bench.Config) { c.Profile.Traffic = 0 },
		`datapath: "ebpf" is not one of`: func(c *bench.Config) { c.Datapath = "ebpf" },
		lab.AgentProgram + " is neither": func(c *bench.Config) { c.Parts = bench.Parts() },
	} {
		bad := cfg
		bad.Parts = []bench.Part{bench.PacketsPart}
		change(&bad)
		if _, err := bench.Run(t.Context(), bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
