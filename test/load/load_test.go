package load

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/measure"
	"github.com/felixlike/felixlike/test/ovstest"
)

// row is a load.
type row struct {
	name string
	task
}

func rows() []row {
	profile := func(endpoints, policies, perEndpoint, rules, groups, size int) workload.Profile {
		return workload.Profile{
			Name: "load", Namespaces: 10, Endpoints: endpoints, PoliciesPerEndpoint: perEndpoint, Policies: policies, RulesPerPolicy: rules, Groups: groups, GroupSize: size,
		}
	}
	return []row{
		{"churn", task{Profile: profile(100, 1000, 10, 4, 100, 20), Pods: 100, Policies: 20, For: 2 * time.Minute}},
		{"endpoints", task{Profile: profile(1000, 1000, 10, 10, 500, 20), Pods: 10, Policies: 2, For: 30 * time.Second}},
		{"policies", task{Profile: profile(500, 10000, 20, 2, 500, 20), Pods: 10, Policies: 2, For: 5 * time.Minute}},
		{"members", task{Profile: profile(100, 10, 1, 2, 1, 200000), Pods: 10, Policies: 2, For: 30 * time.Second}},
	}
}

// small is the row of make test.
func small() row {
	return row{"small", task{Profile: workload.Profile{
		Name: "load", Namespaces: 2, Endpoints: 20, PoliciesPerEndpoint: 4, Policies: 20, RulesPerPolicy: 4, Groups: 10, GroupSize: 5,
	}, Pods: 100, Policies: 20, For: 2 * time.Second}}
}

// Limits of the growth of an agent while changes come and go, along the line of least squares after the first quarter.
const (
	mostMemory      = 15 // MB
	mostDescriptors = 3
	mostGoroutines  = 5
)

// settleTime is how long a run has to be for its memory to be judged: a heap of 250 MB needs minutes to reach its level.
const settleTime = 2 * time.Minute

func TestLoad(t *testing.T) {
	some := []row{small()}
	if *rowName != "" {
		match := regexp.MustCompile(*rowName)
		some = slices.DeleteFunc(rows(), func(r row) bool { return !match.MatchString(r.name) })
	}
	began := time.Now()
	for _, r := range some {
		if time.Since(began) > *budget {
			fmt.Printf("%s: not begun within the budget of %s\n", r.name, *budget)
			continue
		}
		t.Run(r.name, func(t *testing.T) { r.run(t) })
	}
}

func (r row) run(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a network namespace")
	}
	r.Backend = *chosen
	if *lasts > 0 {
		r.For = *lasts
	}
	got := r.measure(t)
	fmt.Printf("%s, %s: %s\n", r.name, r.Backend, got.text())
	for _, trouble := range got.Troubles {
		t.Error(trouble)
	}
	got.judge(t)
}

// measure runs an agent under the task.
func (r task) measure(t *testing.T) *result {
	t.Helper()
	argv := []string{"/proc/self/exe"}
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if r.Backend == config.OpenFlow {
		b := ovstest.NewBridge(t)
		_, pid := b.Daemons.PIDs()
		r.Switch = worker.Switch{Dir: b.Daemons.Dir(), PID: pid}
		executable, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		argv, attr = []string{"ip", "netns", "exec", b.NS, executable}, nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), taskVariable+"="+string(text))
	cmd.SysProcAttr = attr
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the agent: %v\n%s", err, stderr.Bytes())
	}
	if stderr.Len() > 0 {
		t.Logf("the agent says:\n%s", stderr.Bytes())
	}
	got := &result{}
	if err := json.Unmarshal(out, got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return got
}

// text returns the figures for people.
func (g *result) text() string {
	last := func(all []float64) float64 {
		if len(all) == 0 {
			return 0
		}
		return all[len(all)-1]
	}
	return strings.Join([]string{
		fmt.Sprintf("first load %s", g.First.Round(time.Millisecond)),
		fmt.Sprintf("%d applies, median %s, p99 %s", len(g.Applies), quantile(g.Applies, 50), quantile(g.Applies, 99)),
		fmt.Sprintf("change to in force median %s, p99 %s", quantile(g.Delays, 50), quantile(g.Delays, 99)),
		fmt.Sprintf("CPU %.0f%% of one processor for %s", 100*g.CPU.Seconds()/g.Took.Seconds(), g.Took.Round(time.Second)),
		fmt.Sprintf("RSS %.0f MB, peak %.0f MB", last(g.RSS), float64(g.Peak)/1e6),
		fmt.Sprintf("%.0f descriptors, %.0f goroutines", last(g.Descriptors), last(g.Goroutines)),
		fmt.Sprintf("%d rules, %d elements, %d flows", g.Rules, g.Elements, g.Flows),
		"load " + measure.LoadAverage(),
	}, "; ")
}

// quantile returns the value below which so many of a hundred values are.
func quantile(all []time.Duration, percent int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)].Round(10 * time.Microsecond)
}

// judge fails the test if memory, descriptors or goroutines have grown.
func (g *result) judge(t *testing.T) {
	t.Helper()
	first := len(g.At) / 4
	if len(g.At)-first < 10 {
		return // too few samples for a line
	}
	settled := g.Took >= settleTime
	for _, m := range []struct {
		name   string
		values []float64
		limit  float64
	}{
		{"MB of memory", g.RSS, mostMemory}, {"descriptors", g.Descriptors, mostDescriptors}, {"goroutines", g.Goroutines, mostGoroutines},
	} {
		rise, mean := measure.Growth(g.At[first:], m.values[first:])
		fmt.Printf("  %s: %.1f on average, %+.1f over the run\n", m.name, mean, rise)
		if rise > m.limit && (settled || m.limit != mostMemory) {
			t.Errorf("%s have grown by %.1f", m.name, rise)
		}
	}
}
