package bench_test

import "github.com/felixlike/felixlike/cmd/felixctl/livebench"

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/internal/measure"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/bench"
	"github.com/felixlike/felixlike/test/lab"
)

// liveNode is a node with an agent, and two pods of which one serves.
func liveNode(t *testing.T) *lab.Node {
	t.Helper()
	if testing.Short() {
		t.Skip("a lab takes seconds")
	}
	if err := lab.Available(); err != nil {
		t.Skip(err)
	}
	buildAgent(t)
	l, err := lab.Up(t.Context(), lab.Config{Name: fmt.Sprintf("live-%d", os.Getpid())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	pod := func(name string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}}
		return p
	}
	err = l.SetState(t.Context(), lab.State{
		Nodes: []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}}, Pods: []*corev1.Pod{pod("api"), pod("web")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return l.Node("node1")
}

func TestLiveNodeIsWatched(t *testing.T) {
	n := liveNode(t)
	backend := func() string {
		s, err := n.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.Backend
	}
	cfg := livebench.Config{
		Socket: n.ControlSocket(), Watch: time.Second, Rounds: 1, Progress: &steps{at: func(string) {}},
		From: model.PodID{Namespace: "shop", Name: "web"}, To: model.PodID{Namespace: "shop", Name: "api"}, Port: 80,
	}
	r, err := livebench.Watch(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Live.Results) != 1 || r.Live.Switched || r.Live.Node != "node1" || r.Live.Datapath != "netdev" {
		t.Fatalf("%+v", r.Live)
	}
	f := r.Live.Results[0]
	if f.Backend != config.NFTables || f.Endpoints != 2 || f.Rules == 0 || f.Flows == 0 || f.Writes.Max() != 0 || f.Handover != nil {
		t.Errorf("%+v", f)
	}
	if f.AgentRSS.Min() < 1e6 || f.AgentPeakRSS.Min() < f.AgentRSS.Min() || f.SwitchRSS.Min() < 1e6 || f.CPU.Min() <= 0 {
		t.Errorf("memory or CPU: %+v", f)
	}
	if f.Connections.Count == 0 || f.Connections.P50 <= 0 {
		t.Errorf("connections %+v", f.Connections)
	}
	if s := r.Live.Since; len(s) != 4 || s[1].Count == 0 || s[1].Mean <= 0 || s[1].P99 < s[1].P50 {
		t.Errorf("since the agent began: %+v", s)
	}
	var text strings.Builder
	if err := r.Text(&text); err != nil || !strings.Contains(text.String(), "Node node1, live") {
		t.Errorf("error %v, text:\n%s", err, text.String())
	}

	cfg.Switch = []string{config.OpenFlow, config.NFTables}
	if r, err = livebench.Watch(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if len(r.Live.Results) != 2 || r.Live.Results[0].Handover.Min() <= 0 || r.Live.Results[0].Connections.Count == 0 || !r.Live.Switched {
		t.Errorf("%+v", r.Live)
	}

	// An interrupt in the midst of a change, and a backend that there is not.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg.Switch = []string{config.OpenFlow}
	cfg.Progress = &steps{at: func(string) { time.AfterFunc(time.Millisecond, cancel) }}
	if _, err := livebench.Watch(ctx, cfg); !errors.Is(err, context.Canceled) || backend() != config.NFTables {
		t.Errorf("after an interrupt: error %v, backend %s", err, backend())
	}
	cfg.Progress, cfg.Switch = &steps{at: func(string) {}}, []string{config.OpenFlow, "ebpf"}
	if _, err := livebench.Watch(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "ebpf") || backend() != config.NFTables {
		t.Errorf("after an error: error %v, backend %s", err, backend())
	}
	cfg.Switch, cfg.To.Name = nil, "nobody"
	if _, err := livebench.Watch(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "shop/nobody") {
		t.Errorf("error %v", err)
	}
}

// TestLiveReportIsABenchReport: `bench report` reads and shows the report of `bench live`
// like its own.
func TestLiveReportIsABenchReport(t *testing.T) {
	two := measure.Series{0.1, 0.2}
	live := &livebench.Report{
		Version: livebench.ReportVersion, Command: "felixctl bench live", Started: time.Unix(1e9, 0).UTC(), Took: 2.5, Rounds: 2,
		Machine: measure.Machine{CPU: "some", Cores: 2, Tools: map[string]string{}}, Backends: []string{config.NFTables},
		Live: &livebench.Live{
			Node: "n1", Watched: 1, Datastore: "manifests", From: "a/b", To: "c/d", Port: 80,
			Results: []livebench.Result{{Backend: config.NFTables, Endpoints: 3, AgentCPU: two, AgentRSS: two, Changes: two, Connections: measure.Latency{P50: 0.1, Count: 7}}},
			Since:   []livebench.Timing{{What: "pod added", Count: 3, Mean: 0.1}},
		},
	}
	var data strings.Builder
	if err := live.JSON(&data); err != nil {
		t.Fatal(err)
	}
	read, err := bench.Decode([]byte(data.String()))
	if err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string][2]func(io.Writer) error{
		"JSON": {live.JSON, read.JSON}, "text": {live.Text, read.Text}, "Markdown": {live.Markdown, read.Markdown},
	} {
		var own, of strings.Builder
		if err := errors.Join(write[0](&own), write[1](&of)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(of.String(), own.String()); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestBadLiveConfigIsRefused(t *testing.T) {
	for want, cfg := range map[string]livebench.Config{
		"rounds":        {Watch: time.Second},
		"a second":      {Rounds: 1},
		"both":          {Rounds: 1, Watch: time.Second, From: model.PodID{Namespace: "a", Name: "b"}},
		"need a port":   {Rounds: 1, Watch: time.Second, From: model.PodID{Namespace: "a", Name: "b"}, To: model.PodID{Namespace: "a", Name: "c"}},
		"control.sock:": {Rounds: 1, Watch: time.Second, Socket: t.TempDir() + "/control.sock"},
	} {
		if _, err := livebench.Watch(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
