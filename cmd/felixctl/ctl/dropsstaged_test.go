package ctl

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// stagedAgent has staged policies.
type stagedAgent struct {
	control.Agent
	staged *control.Staged
	model  control.Model
}

func (a stagedAgent) Status() control.Status {
	return control.Status{Node: "node1", Staged: a.staged, Endpoints: []control.Endpoint{{Namespace: "shop", Name: "db"}}}
}

func (a stagedAgent) Objects(context.Context) (control.Objects, error) {
	return control.Objects{InSync: true, Namespaces: []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}}, nil
}

func (a stagedAgent) Model(context.Context) (control.Model, error) { return a.model, nil }

// TestStagedDrops: connections that staged policies would have denied have the names of their ends, and are never called denied.
func TestStagedDrops(t *testing.T) {
	at := time.Now().Add(-time.Hour)
	web, db, outside := netip.MustParseAddr("10.10.1.7"), netip.MustParseAddr("10.10.0.8"), netip.MustParseAddr("192.0.2.1")
	in := control.StagedConnection{At: at, Direction: "ingress", Source: web, Destination: db, Protocol: model.TCP, Port: 5432}
	ping := control.StagedConnection{At: at, Direction: "ingress", Source: outside, Destination: db, Protocol: model.ICMP, Port: model.ICMPMessage(8, 0)}
	out := control.StagedConnection{At: at, Direction: "egress", Source: db, Destination: outside, Protocol: model.UDP, Port: 53}
	agent := &stagedAgent{
		model: control.Model{Node: "node1", Pods: []control.Pod{{ID: model.PodID{Namespace: "shop", Name: "web"}, Addresses: []netip.Addr{web}}}},
		staged: &control.Staged{Node: "node1", Policies: []control.StagedPolicy{
			{Policy: "networkpolicy/shop/db-in", Denied: 9, Flows: []control.StagedFlow{
				{Pod: "shop/db", StagedConnection: in, Connections: 5, Last: at.Add(time.Minute)},
				{Pod: "shop/db", StagedConnection: ping, Connections: 1, Last: time.Now()},
			}},
			{Policy: "clusternetworkpolicy/no-dns", Denied: 2, Flows: []control.StagedFlow{{Pod: "shop/db", StagedConnection: out, Connections: 2, Last: time.Now()}}},
		}},
	}
	socket := filepath.Join(t.TempDir(), "s")
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- control.Serve(ctx, socket, agent, slog.New(slog.DiscardHandler)) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	serves(t, socket)
	run := func(args ...string) (text, notes string, err error) {
		c := dropsCommand()
		var stdout, stderr bytes.Buffer
		c.SetOut(&stdout)
		c.SetErr(&stderr)
		c.SilenceUsage, c.SilenceErrors = true, true
		c.SetArgs(append([]string{"--staged", "--socket", socket}, args...))
		err = c.ExecuteContext(t.Context())
		return stdout.String(), stderr.String(), err
	}
	text, notes, err := run()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if !errors.Is(err, ErrDenied) || len(lines) != 4 || !strings.Contains(lines[0], "WOULD BE DENIED BY") || !strings.Contains(notes, "3 older connections of all pods are only counted") {
		t.Fatalf("%v\n%s%s", err, text, notes)
	}
	for i, want := range []string{"shop/web shop/db tcp/5432 ingress networkpolicy/shop/db-in 5", "shop/db 192.0.2.1 udp/53 egress clusternetworkpolicy/no-dns 2", "192.0.2.1 shop/db icmp echo-request ingress networkpolicy/shop/db-in 1"} {
		if got := strings.Join(strings.Fields(lines[i+1]), " "); !strings.HasPrefix(got, want+" ") {
			t.Errorf("%s, want %s", got, want)
		}
	}
	text, _, err = run("-o", "json", "--pod", "shop/web")
	if !errors.Is(err, ErrDenied) || strings.Count(text, "\n") != 1 || !strings.Contains(text, `"by":"staged","policy":"networkpolicy/shop/db-in","connections":5,"last":"`) || !strings.Contains(text, `"pod":"shop/web"`) {
		t.Errorf("%v\n%s", err, text)
	}
	if text, _, err = run("--since", "5m", "--direction", "ingress"); !errors.Is(err, ErrDenied) || strings.Contains(text, "tcp/5432") || !strings.Contains(text, "echo-request") {
		t.Errorf("%v\n%s", err, text)
	}
	if text, _, err = run("-n", "shop", "--pod", "other"); err != nil || !strings.HasPrefix(text, "staged policies would have denied nothing") {
		t.Errorf("%v\n%s", err, text)
	}
	for _, since := range []string{"0s", "-1m"} {
		if _, _, err = run("--since", since); err == nil || !strings.Contains(err.Error(), "is not positive") {
			t.Errorf("--since %s: %v", since, err)
		}
	}
	if got, old := timeText(at, at.Add(23*time.Hour)), timeText(at, at.Add(24*time.Hour)); got != at.Local().Format("15:04:05") || old != at.Local().Format("2006-01-02 15:04:05") {
		t.Errorf("%s, %s", got, old)
	}
	if _, _, err = run("--follow"); err == nil || errors.Is(err, ErrDenied) {
		t.Errorf("--follow: %v", err)
	}
	agent.staged.NotEvaluated = "a reason"
	if _, _, err = run(); err == nil || errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "a reason") {
		t.Errorf("not evaluated: %v", err)
	}
	agent.staged = nil
	if _, notes, err = run(); err != nil || !strings.Contains(notes, "no staged policy") {
		t.Errorf("none: %v %s", err, notes)
	}
}
