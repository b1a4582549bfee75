package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/eventually"
)

func missing(t *testing.T, f *fixture) string {
	t.Helper()
	var (
		all   []string
		ready bool
	)
	// At one moment, felixctl status does not say Ready if the probe fails.
	if err := f.queue.ask(t.Context(), func() { all, ready = f.reporter.Readiness().Missing, report.Ready(f.reporter.Status()) }); err != nil {
		t.Fatal(err)
	}
	if len(all) > 0 && ready {
		t.Errorf("status says Ready, and the probe %q", all)
	}
	return strings.Join(all, "; ")
}

func TestReadyTransitions(t *testing.T) {
	table := drivertest.NewTable(t)
	f := startWith(t, Config{Stages: []backend.Stage{table.Stage()}})
	if got := missing(t, f); !strings.Contains(got, "first listing is not complete") || !strings.Contains(got, "attachments") {
		t.Errorf("at the start: %q", got)
	}
	f.Source.Send(true, drivertest.Node("node2", "10.10.1.0/24"))
	f.AttachmentsSynced()
	eventually.True(t, "the own node is missed", func() bool { return missing(t, f) == "node node1 is not in the datastore" })
	table.Set(func() { table.Err = errors.New("no buffer space") })
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"))
	eventually.True(t, "a failure makes the agent not ready", func() bool {
		return missing(t, f) == "programming the dataplane failed: nftables: no buffer space"
	})
	table.Set(func() { table.Err = nil })
	eventually.True(t, "the agent is ready", func() bool { return missing(t, f) == "" })
	table.Set(func() { table.Err = errors.New("again") })
	f.Source.Send(true, drivertest.PodOn("a", "node1"))
	eventually.True(t, "a later failure makes it not ready again", func() bool { return strings.Contains(missing(t, f), "again") })
}

// A manifest that was never read in full makes the agent not ready: it may have a policy of any pod. An outdated one does not.
func TestUnreadManifestIsNotReady(t *testing.T) {
	f := startWith(t, Config{Stages: []backend.Stage{drivertest.NewTable(t).Stage()}})
	f.begin(t)
	eventually.True(t, "the agent is ready", func() bool { return missing(t, f) == "" })
	for _, c := range []struct {
		unknown  []string
		outdated int
		want     string
	}{
		{nil, 2, ""},
		{[]string{"a.yaml"}, 0, "manifest a.yaml could never be read in full: policies in it are not in force"},
		{[]string{"a.yaml", "b.yaml", "c.yaml"}, 1, "manifest a.yaml and 2 more could never be read in full: policies in them are not in force"},
		{nil, 0, ""},
	} {
		f.Source.SendBatch(datastore.Batch{InSync: true, Unknown: c.unknown, Outdated: c.outdated})
		eventually.True(t, "the agent says "+c.want, func() bool { return missing(t, f) == c.want })
		recorder := httptest.NewRecorder()
		f.Metrics().ServeHTTP(recorder, httptest.NewRequest("GET", "/metrics", nil))
		for _, line := range []string{
			fmt.Sprintf("felixlike_manifests_unread_files %d", len(c.unknown)), fmt.Sprintf("felixlike_manifests_outdated_files %d", c.outdated),
		} {
			if !strings.Contains(recorder.Body.String(), line) {
				t.Errorf("no metric %q", line)
			}
		}
	}
}

// An outage of the host network makes the agent not ready, and is in the status.
func TestOutageIsNotReady(t *testing.T) {
	var mu sync.Mutex
	var outages []datastore.Notice
	f := startWith(t, Config{
		Stages: []backend.Stage{drivertest.NewTable(t).Stage()},
		Modules: []Module{{Notices: func() []datastore.Notice {
			mu.Lock()
			defer mu.Unlock()
			return outages
		}}},
	})
	f.begin(t)
	eventually.True(t, "the agent is ready", func() bool { return missing(t, f) == "" })
	if s, ok := f.scrape(); !ok || !s.Ready {
		t.Errorf("the metric says that the agent is not ready")
	}
	mu.Lock()
	outages = []datastore.Notice{{
		Problem: model.Problem{Object: model.NodeRef("node1"), Reason: "00-other.conf is taken"}, Kind: "OtherCNI",
	}, {
		Problem: model.Problem{Object: model.NodeRef("node1"), Reason: "route 10.10.1.0/24 is missing"},
	}}
	mu.Unlock()
	if got := missing(t, f); got != "00-other.conf is taken; route 10.10.1.0/24 is missing" {
		t.Errorf("not ready because of %q", got)
	}
	if s, ok := f.scrape(); !ok || s.Ready {
		t.Errorf("the metric says that the agent is ready")
	}
	if all := f.Status().Problems; len(all) != 2 || all[0].Reason != "00-other.conf is taken" {
		t.Errorf("problems %+v", all)
	}
	// A reason that changes all the time becomes no Event.
	notices, err := f.Notices(t.Context())
	if err != nil || len(notices) != 1 || notices[0].Kind != "OtherCNI" || notices[0].Known != datastore.KnownHere {
		t.Errorf("notices %+v, %v", notices, err)
	}
}

func TestQuarantineLeavesTheAgentReady(t *testing.T) {
	f, table, _ := startQuarantine(t, &drivertest.LogBuffer{})
	refuse(t, f, table, refusedWeb())
	r := f.Ready(t.Context())
	if len(r.Missing) != 0 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "too big") {
		t.Errorf("%+v", r)
	}
}

func TestChangeThatWaitsTooLongIsNotReady(t *testing.T) {
	sw := drivertest.NewHanging(t)
	f := startWith(t, Config{Stages: []backend.Stage{{Name: "openflow", Timeout: time.Minute, Apply: sw.Apply}}, Timing: Timing{ReadyGrace: 30 * time.Millisecond}})
	f.begin(t)
	if got := missing(t, f); got != "" {
		t.Errorf("programmed, but %q", got)
	}
	sw.SetHangs(true)
	f.Source.Send(true, drivertest.PodOn("a", "node1"))
	eventually.True(t, "a change waits too long", func() bool { return strings.Contains(missing(t, f), "revision 1 of 2 is programmed") })
	if err := f.Alive(); err != nil {
		t.Errorf("a loop that waits for a stage is alive: %v", err)
	}
}

func TestStuckLoopIsNotAlive(t *testing.T) {
	f := start(t)
	f.begin(t)
	if err := f.Alive(); err != nil {
		t.Fatalf("an idle loop: %v", err)
	}
	release := make(chan struct{})
	f.queue.call(t.Context(), func() { <-release })
	// The clock is moved, not waited for.
	eventually.True(t, "the loop is stuck", func() bool {
		f.stages.lastBeat.Store(int64(time.Since(f.stages.started) - stuckAfter - time.Second))
		time.Sleep(time.Millisecond)
		return f.Alive() != nil
	})
	if err := f.Alive(); err == nil || !strings.Contains(err.Error(), "the loop has not moved for 1") {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if r := f.Ready(ctx); len(r.Missing) != 1 || !strings.Contains(r.Missing[0], "does not answer") {
		t.Errorf("%+v", r)
	}
	close(release)
	eventually.True(t, "the loop moves again", func() bool { return f.Alive() == nil })
}

func TestStageThatOutlivesItsDeadlineIsNotAlive(t *testing.T) {
	release := make(chan struct{})
	entered := make(chan struct{}, 1)
	noAnswer := backend.Stage{Name: "conntrack", Timeout: time.Millisecond, Apply: func(context.Context) (backend.Applied, error) {
		entered <- struct{}{}
		<-release
		return backend.Applied{}, nil
	}}
	f := startWith(t, Config{Stages: []backend.Stage{noAnswer}})
	defer close(release)
	f.AttachmentsSynced()
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"))
	<-entered
	if err := f.Alive(); err != nil {
		t.Errorf("within the grace: %v", err)
	}
	// The clock is moved, not waited for.
	f.stages.runners[0].mustEnd.Store(int64(time.Since(f.stages.started) - stuckAfter - time.Second))
	if err := f.Alive(); err == nil || !strings.Contains(err.Error(), "stage conntrack is ") {
		t.Error(err)
	}
}

func TestScrapeAfterApplies(t *testing.T) {
	f, table, _ := startQuarantine(t, &drivertest.LogBuffer{})
	refuse(t, f, table, refusedWeb())
	table.Set(func() { table.Repaired = []tables.Repair{foreignRule()} })
	f.Source.Send(true, datastore.NetworkPolicyDeleted{Namespace: "x", Name: "gone"}, drivertest.PodOn("c", "node1"))
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	f.Metrics().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`felixlike_apply_duration_seconds_count{kind="full",stage="nftables"} 1`,
		`felixlike_apply_total{result="failure",stage="openflow"} 0`,
		`felixlike_datastore_synced 1`, `felixlike_pending_objects 0`, `felixlike_quarantined_objects 1`,
		`felixlike_drift_repaired_total{object="chain"} 1`, `felixlike_policy_programming_duration_seconds_count 2`,
		`felixlike_endpoints{state="closed"} 1`, `felixlike_endpoints{state="detached"} 1`, `felixlike_endpoints{state="programmed"} 1`,
		`felixlike_objects_with_problems{kind="NetworkPolicy",reason="Quarantined"} 1`,
		`felixlike_rules 12`, `felixlike_set_elements 34`,
	} {
		if !strings.Contains(string(body), want) {
			t.Errorf("no %q in:\n%s", want, body)
		}
	}
}
