// Package e2e tests the whole: real agents, real Open vSwitch and real packets
// in a lab. It holds only tests. They build the agent and felixctl as they are
// in the tree, and skip where a lab cannot run.
//
// A lab waits most of its time, so labs run side by side. A test runs alone, without
// t.Parallel, if the load of other labs could change its result: it measures, has a
// deadline of a few seconds, or keeps the processors busy.
package e2e

import (
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
)

// The environment of these tests, which test/vm/kernel sets in a virtual machine.
const (
	// datapathEnv is the datapath of labs that ask for none, netdev if it is empty.
	datapathEnv = "FLX_TEST_DATAPATH"
	// offloadEnv is the setting offload of labs that name none.
	offloadEnv = "FLX_TEST_OFFLOAD"
	// binariesEnv is a folder with felixctl and the agent, built already.
	binariesEnv = "FLX_TEST_BINARIES"
)

// emulatedSync is lab.DefaultSyncTimeout for a virtual machine with emulated
// processors, on a busy host.
const emulatedSync = 5 * time.Minute

// buildDir is the directory of the binaries that TestMain builds.
var buildDir string

// sideBySide is the number of labs that run at once unless -parallel is set. On two
// processors it shortened 26 tests from 235 s to 57 s.
const sideBySide = 6

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	// The labs need the processors more than this process the memory.
	debug.SetGCPercent(400)
	_ = os.Unsetenv(labs.RootVariable) // the tests name no folder
	if err := boundLabs(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if err := lab.Available(); err != nil {
		// The tests say so themselves: every one of them calls newLab or binary.
		return m.Run()
	}
	if buildDir = os.Getenv(binariesEnv); buildDir != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "flx-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer os.RemoveAll(dir)
	buildDir = dir
	build := exec.Command("go", "build", "-o", dir, "../../cmd/felixctl", "../../cmd/felixlab", "../../cmd/felixlike-agent")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the binaries:", err)
		return 2
	}
	return m.Run()
}

// boundLabs bounds the parallel tests that run at once.
func boundLabs() error {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", strconv.Itoa(sideBySide))
}

// needLab skips a test where labs cannot run.
func needLab(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("a lab takes seconds")
	}
	if err := lab.Available(); err != nil {
		t.Skip(err)
	}
}

// newLab makes a lab that is taken down when the test ends.
func newLab(t *testing.T) *lab.Lab {
	t.Helper()
	return newLabWith(t, lab.Config{})
}

// emulated reports whether the test may run in a virtual machine without KVM, where everything takes 20 to
// 40 times as long (test/vm).
func emulated() bool { return os.Getenv(binariesEnv) != "" }

// newLabWith does so with a configuration; the agent is filled in if there is none. A test with two labs names one of them.
func newLabWith(t *testing.T, config lab.Config) *lab.Lab {
	t.Helper()
	needLab(t)
	config.Name = "e2e-" + uniqueName(t) + config.Name
	if config.Agent == "" {
		config.Agent = filepath.Join(buildDir, lab.AgentProgram)
	}
	if config.Datapath == "" {
		config.Datapath = os.Getenv(datapathEnv)
	}
	if config.Offload == "" {
		config.Offload = os.Getenv(offloadEnv)
	}
	if emulated() && config.SyncTimeout == 0 {
		config.SyncTimeout = emulatedSync
	}
	l, err := lab.Up(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			showLogs(t, l)
		}
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// uniqueName is a short name that no other running test has.
func uniqueName(t *testing.T) string {
	hash := fnv.New32a()
	hash.Write([]byte(t.Name()))
	return fmt.Sprintf("%d-%08x", os.Getpid(), hash.Sum32())
}

// showLogs prints the end of the logs of agents and supervisors.
func showLogs(t *testing.T, l *lab.Lab) {
	files, err := filepath.Glob(filepath.Join(l.Dir(), "nodes", "*", "*.log"))
	if err != nil {
		t.Log(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Log(err)
		}
		const most = 3000
		t.Logf("%s:\n%s", file, text[max(0, len(text)-most):])
	}
}

// state parses YAML into a state.
func state(t *testing.T, texts ...string) lab.State {
	t.Helper()
	var s lab.State
	for _, text := range texts {
		more, err := lab.Parse(t.Name(), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		s = s.Merge(more)
	}
	return s
}

func set(t *testing.T, l *lab.Lab, s lab.State) {
	t.Helper()
	if err := l.SetState(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// probeTimeout bounds the wait for an answer. An allowed
// connection gets patience before it counts as blocked: on a busy machine
// answers are late, but policy drops a denied packet every time.
const (
	probeTimeout = time.Second
	patience     = 15 * time.Second
)

// probe tries one connection over both families and reports whether it gets
// through; it fails the test if the families differ.
func probe(t *testing.T, l *lab.Lab, from, to string, proto model.Protocol, port uint16) bool {
	t.Helper()
	return probeFor(t, l, probeTimeout, from, to, proto, port)
}

func probeFor(t *testing.T, l *lab.Lab, timeout time.Duration, from, to string, proto model.Protocol, port uint16) bool {
	t.Helper()
	var probes []lab.Probe
	for _, f := range model.Families() {
		probes = append(probes, lab.Probe{From: from, To: to, Protocol: proto, Port: port, Family: f})
	}
	r := l.Probe(t.Context(), probes, timeout)
	for _, r := range r {
		if !r.Tried {
			t.Fatalf("%s -> %s %s/%d IPv%s was not tried: %s", from, to, proto, port, r.Probe.Family, r.Reason)
		}
	}
	if r[0].Through != r[1].Through {
		t.Errorf("%s -> %s %s/%d: over IPv4 %q, over IPv6 %q", from, to, proto, port, r[0].Reason, r[1].Reason)
	}
	return r[0].Through
}

// expect fails the test if a connection does not go as wanted.
func expect(t *testing.T, l *lab.Lab, through bool, from, to string, proto model.Protocol, port uint16) {
	t.Helper()
	timeout := probeTimeout
	if through {
		timeout = patience
	}
	if got := probeFor(t, l, timeout, from, to, proto, port); got != through {
		t.Errorf("%s -> %s %s/%d: through %v, want %v", from, to, proto, port, got, through)
	}
}
