package felixlike

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/denied"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// logSink has the lines of an agent's log.
type logSink struct {
	mu    sync.Mutex
	lines []string
}

func (s *logSink) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, string(b))
	return len(b), nil
}

func (s *logSink) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}

// logsReportedIn returns the LogsUpdates of the managers, in order.
func logsReportedIn(f *fakeTable) []bool {
	f.busy.Lock()
	defer f.busy.Unlock()
	var all []bool
	for _, u := range f.updates {
		if u, ok := u.(model.LogsUpdate); ok {
			all = append(all, u.Reported)
		}
	}
	return all
}

// loggingPolicy lets everybody to x/a, and logs it.
func loggingPolicy(annotations map[string]string) datastore.Event {
	return datastore.NetworkPolicySet{Policy: &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "open", Annotations: annotations},
		Spec:       networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{}}},
	}}
}

// TestPolicyLog: the dataplane reports while a rule has Log. Each report becomes a line, up to
// the limit of its rule, and the others are counted.
func TestPolicyLog(t *testing.T) {
	table, reports, sink := newFakeTable(t), &fakeDenials{}, &logSink{}
	f := startWith(t, Config{Stages: []backend.Stage{table.stage()}, Backend: &fake{name: "fake", stage: table.stage(), logs: reports}, PolicyLog: sink})
	f.attach("a", "10.10.0.5")
	logging := map[string]string{model.LogAnnotation: "true", model.LogLabelAnnotation: "audit"}
	f.begin(t, podOn("a", "node1"), loggingPolicy(logging))
	eventually(t, "the dataplane reports", func() bool { return slices.Equal(logsReportedIn(table), []bool{true}) })

	ctx, cancel := context.WithCancel(context.Background())
	followed, done := make(chan control.Logged, 1000), make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		once := sync.OnceFunc(func() { close(begun) })
		done <- f.PolicyLog(ctx, time.Hour, func(l *control.Logged) error {
			if once(); l != nil {
				followed <- *l
			}
			return nil
		})
	}()
	<-begun
	key := rules.NewLogKey(model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "x", Name: "open"}, model.Ingress, &model.Rule{Name: "ingress[0]", Action: model.Allow})
	at := time.Unix(7, 0).UTC()
	for range rules.LogsPerSecond + 5 {
		reports.report(denied.Report{At: at, Log: key, Packet: packet(t)})
	}
	reports.report(denied.Report{Log: "of-a-rule-that-is-gone", Packet: packet(t)})
	var lost uint64
	var lines []string
	eventually(t, "lines, and the number of those without one", func() bool {
		lines, lost = nil, 0
		for _, text := range sink.all() {
			var l logLine
			if err := json.Unmarshal([]byte(text), &l); err != nil || l.Component != "policy-log" {
				t.Fatalf("%q: %v", text, err)
			}
			if lost += l.NotLogged; l.NotLogged == 0 {
				lines = append(lines, text)
			}
		}
		return len(lines) >= rules.LogsPerSecond && lost >= 6
	})
	want := `{"component":"policy-log","time":"1970-01-01T00:00:07Z","policy":{"kind":"NetworkPolicy","namespace":"x","name":"open"},"rule":"ingress[0]",` +
		`"tier":"networkpolicy","verdict":"allow","direction":"ingress","from":{"address":"10.10.0.7"},"to":{"address":"10.10.0.5","pod":"x/a"},` +
		`"protocol":"udp","sourcePort":40000,"port":53,"logLabel":"audit"}` + "\n"
	if len(lines) != rules.LogsPerSecond || lines[0] != want || lost != 6 {
		t.Errorf("%d lines, %d lost; the first is\n%swant\n%s", len(lines), lost, lines[0], want)
	}
	if l := <-followed; l.To.Pod != "x/a" || l.LogLabel != "audit" {
		t.Errorf("followed: %+v", l)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}

	f.source.send(false, loggingPolicy(nil))
	eventually(t, "the dataplane reports no more", func() bool {
		return slices.Equal(logsReportedIn(table), []bool{true, false})
	})
	eventually(t, "nobody listens", func() bool { reports.mu.Lock(); defer reports.mu.Unlock(); return reports.listeners == 0 })
}

// TestPolicyLogThatFails: where the dataplane cannot report, it is not told to, and a follower
// gets the reason.
func TestPolicyLogThatFails(t *testing.T) {
	table, reports := newFakeTable(t), &fakeDenials{check: errors.New("no NFLOG here")}
	f := startWith(t, Config{Stages: []backend.Stage{table.stage()}, Backend: &fake{name: "fake", stage: table.stage(), logs: reports}})
	f.attach("a", "10.10.0.5")
	f.begin(t, podOn("a", "node1"), loggingPolicy(map[string]string{model.LogAnnotation: "allow"}))
	eventually(t, "a follower gets the reason", func() bool {
		err := f.PolicyLog(t.Context(), time.Hour, func(*control.Logged) error { return errors.New("served") })
		return err != nil && strings.Contains(err.Error(), "no NFLOG here")
	})
	if got := logsReportedIn(table); len(got) > 0 {
		t.Errorf("told of reports: %v", got)
	}
}
