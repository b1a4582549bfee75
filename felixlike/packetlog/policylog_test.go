package packetlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/denied"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/internal/isolate"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/eventually"
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
func logsReportedIn(f *drivertest.Table) []bool {
	var all []bool
	for _, u := range f.Received() {
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
	table, reports, sink := drivertest.NewTable(t), &fakeDenials{}, &logSink{}
	f := start(t, table.Stage(), &drivertest.Backend{LogsIs: reports}, sink)
	f.Attach("a", "10.10.0.5")
	logging := map[string]string{model.LogAnnotation: "true", model.LogLabelAnnotation: "audit"}
	f.Begin(t, drivertest.PodOn("a", "node1"), loggingPolicy(logging))
	eventually.True(t, "the dataplane reports", func() bool { return slices.Equal(logsReportedIn(table), []bool{true}) })

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
	eventually.True(t, "lines, and the number of those without one", func() bool {
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

	f.Source.Send(false, loggingPolicy(nil))
	eventually.True(t, "the dataplane reports no more", func() bool {
		return slices.Equal(logsReportedIn(table), []bool{true, false})
	})
	eventually.True(t, "nobody listens", func() bool { reports.mu.Lock(); defer reports.mu.Unlock(); return reports.listeners == 0 })
}

// TestPolicyLogThatFails: where the dataplane cannot report, it is not asked to, and a follower
// gets the reason.
func TestPolicyLogThatFails(t *testing.T) {
	table, reports := drivertest.NewTable(t), &fakeDenials{check: errors.New("no NFLOG here")}
	f := start(t, table.Stage(), &drivertest.Backend{LogsIs: reports}, nil)
	f.Attach("a", "10.10.0.5")
	f.Begin(t, drivertest.PodOn("a", "node1"), loggingPolicy(map[string]string{model.LogAnnotation: "allow"}))
	eventually.True(t, "a follower gets the reason", func() bool {
		err := f.PolicyLog(t.Context(), time.Hour, func(*control.Logged) error { return errors.New("served") })
		return err != nil && strings.Contains(err.Error(), "no NFLOG here")
	})
	if got := logsReportedIn(table); len(got) > 0 {
		t.Errorf("requests of reports: %v", got)
	}
}

// TestPolicyLogOfARefusedPolicy: if the dataplane refuses a policy because its rules report, the
// reports are turned off, so that its pods are not closed for longer. A follower gets the reason.
func TestPolicyLogOfARefusedPolicy(t *testing.T) {
	table, reports := drivertest.NewTable(t), &fakeDenials{}
	refused := tables.Refusal{
		Object: "chain", Name: "pin-x/open", Reason: "no such target",
		Origin: tables.OfPolicy{ID: model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "x", Name: "open"}, Direction: model.Ingress},
	}
	accepts := true
	table.OnApply = func() { // the stage holds its locks
		reported := false
		for _, u := range table.Updates {
			if u, ok := u.(model.LogsUpdate); ok {
				reported = u.Reported
			}
		}
		if table.Refused = nil; reported && !accepts {
			table.Refused = []tables.Refusal{refused}
		}
	}
	f := start(t, table.Stage(), &drivertest.Backend{LogsIs: reports}, nil)
	f.Attach("a", "10.10.0.5")
	f.Begin(t, drivertest.PodOn("a", "node1"), loggingPolicy(map[string]string{model.LogAnnotation: "true"}))
	eventually.True(t, "the dataplane reports", func() bool { return slices.Equal(logsReportedIn(table), []bool{true}) })
	table.Set(func() { accepts = false })
	f.Source.Send(true, drivertest.PodOn("b", "node1"))
	eventually.True(t, "the reports are turned off", func() bool { return slices.Equal(logsReportedIn(table), []bool{true, false}) })
	eventually.True(t, "nothing is quarantined", func() bool { return len(f.Status().Quarantined) == 0 })
	eventually.True(t, "a follower gets the reason", func() bool {
		err := f.PolicyLog(t.Context(), time.Hour, func(*control.Logged) error { return errors.New("served") })
		return err != nil && strings.Contains(err.Error(), "chain pin-x/open of a policy with logging is refused: no such target")
	})
}

// TestLogRefusals: an object that was refused before the reports is no reason to turn them off,
// until it is accepted or refused for another reason.
func TestLogRefusals(t *testing.T) {
	old, other := tables.Refusal{Object: "chain", Name: "p", Reason: "one"}, tables.Refusal{Object: "chain", Name: "p", Reason: "two"}
	r := &logRefusals{before: []tables.Refusal{old}}
	for i, c := range []struct {
		now  []tables.Refusal
		more bool
	}{{[]tables.Refusal{old}, false}, {[]tables.Refusal{old, other}, true}, {nil, false}, {[]tables.Refusal{old}, true}} {
		if got := r.more(c.now) != nil; got != c.more {
			t.Errorf("%d: %v", i, got)
		}
	}
}

// TestLogRetries: the wait grows with each failure, and the same reason is news once. Another
// backend starts anew.
func TestLogRetries(t *testing.T) {
	var r logRetries
	now, why := time.Unix(1000, 0), errors.New("no NFLOG here")
	r.of("one")
	for i, wait := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, isolate.LongestWait, isolate.LongestWait} {
		if news := r.failed(now, now, why); news != (i == 0) || !r.Next.Equal(now.Add(wait)) {
			t.Errorf("failure %d: news %v, wait %s, want %s", i, news, r.Next.Sub(now), wait)
		}
		if r.of("one") || r.Due(now) {
			t.Errorf("failure %d: tried again at once", i)
		}
	}
	if !r.failed(now, now, errors.New("another reason")) {
		t.Error("another reason is no news")
	}
	if r.failed(now, now.Add(time.Hour), why); !r.Next.Equal(now.Add(time.Hour + logRetry)) {
		t.Errorf("after an hour without a failure, the wait ends at %s", r.Next)
	}
	if !r.of("two") || !r.Due(now) || !r.failed(now, now, why) {
		t.Error("another backend does not start anew")
	}
}

// TestLogLimits: policies of a namespace cannot take all lines of a node from those of the
// cluster, and after a burst all together have LogsPerNode a second.
func TestLogLimits(t *testing.T) {
	tenant, admin := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "x", Name: "p"}, model.PolicyID{Tier: model.TierAdmin, Name: "guard"}
	limits := newLogLimits()
	at := time.Unix(1000, 0)
	lines := func(of model.PolicyID) (n int) {
		for rule := range 2 * rules.LogsBurst {
			if limits.allow(denied.Report{At: at, Log: rules.LogKey(fmt.Sprint(of, rule))}, of) {
				n++
			}
		}
		return n
	}
	if tenants, admins := lines(tenant), lines(admin); tenants != 400 || admins != 100 {
		t.Errorf("a burst: %d lines of a namespace, and then %d of the cluster", tenants, admins)
	}
	at = at.Add(time.Second)
	if tenants, admins := lines(tenant), lines(admin); tenants != 80 || admins != 20 {
		t.Errorf("a second later: %d lines of a namespace, and then %d of the cluster", tenants, admins)
	}
	if unknown := lines(model.PolicyID{}); unknown != 0 {
		t.Errorf("%d lines of rules that are gone", unknown)
	}
}

// TestLogNames: new addresses are read after a change of the model, and not more often than every
// logViewFor.
func TestLogNames(t *testing.T) {
	at := time.Unix(1000, 0)
	names := &logNames{}
	if !names.outdated(at, 7) {
		t.Error("nothing is read at first")
	}
	names.view, names.viewed, names.viewedRevision = &denied.View{}, at, 7
	if names.outdated(at.Add(time.Hour), 7) || names.outdated(at.Add(logViewFor-1), 8) || !names.outdated(at.Add(logViewFor), 8) {
		t.Error("read at a wrong time")
	}
}

// TestUnwrittenLines: lines that a stalled output does not take are counted in a later line.
func TestUnwrittenLines(t *testing.T) {
	l, sink := NewLog(nil, nil), &logSink{}
	l.send(make([]control.Logged, maxWaiting+10))
	l.send([]control.Logged{{NotLogged: 5}})
	ctx, cancel := context.WithCancel(t.Context())
	written := make(chan struct{})
	go func() { defer close(written); l.write(ctx, sink) }()
	eventually.True(t, "the lines that waited are written", func() bool { return len(sink.all()) == maxWaiting })
	l.send(nil)
	eventually.True(t, "the others are counted", func() bool {
		all := sink.all()
		return len(all) == maxWaiting+1 && strings.Contains(all[maxWaiting], `"notLogged":15`)
	})
	cancel()
	<-written
}
