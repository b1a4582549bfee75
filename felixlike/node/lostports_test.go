package node

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/felixlike/driver/moduletest"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
)

func noInterface(string) (bool, error) { return false, nil }

// TestInterfaceExists needs no interface but lo.
func TestInterfaceExists(t *testing.T) {
	for name, want := range map[string]bool{"lo": true, "flx-none": false} {
		if got, err := interfaceExists(name); err != nil || got != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// A lost interface is named after a moment, once in the log, and until the pod is made anew.
func TestLostPortsAreNamedAfterAMoment(t *testing.T) {
	var log bytes.Buffer
	l := NewLostPorts(nil, slog.New(slog.NewTextHandler(&log, nil)))
	l.exists = noInterface
	web := model.Attachment{Pod: model.PodID{Namespace: "x", Name: "web"}, Sandbox: "1", Interface: "fx-1"}
	now := time.Now()
	l.look([]model.Attachment{web}, now)
	l.look([]model.Attachment{web}, now.Add(lostGrace-time.Millisecond))
	if all := l.Attachments(); len(all) != 0 {
		t.Errorf("named at once: %v", all)
	}
	l.look([]model.Attachment{web}, now.Add(lostGrace))
	l.look([]model.Attachment{web}, now.Add(2*lostGrace))
	if all := l.Attachments(); len(all) != 1 || all[0].Interface != "fx-1" {
		t.Errorf("not named: %v", all)
	}
	if n := strings.Count(log.String(), "has lost its interface"); n != 1 {
		t.Errorf("%d lines in the log:\n%s", n, log.String())
	}
	l.look(nil, now.Add(3*lostGrace))
	if all := l.Attachments(); len(all) != 0 {
		t.Errorf("still named: %v", all)
	}
}

// A runtime may delete the namespace of a sandbox before it calls the CNI plugin. After a restart of
// the node there are no namespaces. Neither is a lost interface.
func TestPodWithoutNamespaceHasNotLostItsInterface(t *testing.T) {
	l := NewLostPorts(nil, slog.New(slog.DiscardHandler))
	l.exists = noInterface
	netNS := filepath.Join(t.TempDir(), "netns")
	web := model.Attachment{Pod: model.PodID{Namespace: "x", Name: "web"}, Sandbox: "1", Interface: "fx-1", NetNS: netNS}
	now := time.Now()
	look := func(at time.Duration) int {
		l.look([]model.Attachment{web}, now.Add(at))
		return len(l.Attachments())
	}
	look(0)
	if look(lostGrace) != 0 {
		t.Error("a pod without a namespace is named")
	}
	if err := os.WriteFile(netNS, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	look(2 * lostGrace)
	if look(3*lostGrace) != 1 {
		t.Error("a pod with a namespace is not named")
	}
	if err := os.Remove(netNS); err != nil {
		t.Fatal(err)
	}
	if look(4*lostGrace) != 0 {
		t.Error("a pod is named whose namespace was deleted")
	}
}

// A pod without its interface is in status, Events and metrics. The agent stays ready: a pod may have deleted
// its interface itself, and must not block a rolling update. New pods can be added: otherwise the pod could
// not be made anew. A pod that the datastore does not have is not named, nor is one before everything is
// programmed, nor one that has another interface.
func TestLostInterfaceIsNamed(t *testing.T) {
	gone := model.Attachment{Pod: model.PodID{Namespace: "x", Name: "gone"}, Sandbox: "first", Interface: "veth-gone"}
	const want = "has lost its interface veth-gone: it has no network until it is made anew"
	l := NewLostPorts(func(context.Context) ([]model.Attachment, error) { return []model.Attachment{gone}, nil }, slog.New(slog.DiscardHandler))
	l.exists = noInterface
	now := time.Now()
	l.look([]model.Attachment{gone}, now)
	l.look([]model.Attachment{gone}, now.Add(lostGrace))
	v := &driver.View{}
	m := l.Module(v)
	m.Run = nil // what it has seen stays
	f := moduletest.Start(t, driver.Config{}, v, m)
	f.Source.Send(true, drivertest.PodOn("gone", "node1"))
	named := func() bool {
		return slices.ContainsFunc(f.Status().Problems, func(p model.Problem) bool { return p.Object.Kind == "Pod" && strings.Contains(p.Reason, want) })
	}
	if named() {
		t.Error("a pod is named before everything is programmed")
	}
	f.Source.Send(true, datastore.PodDeleted{ID: gone.Pod})
	f.Begin(t)
	eventually.True(t, "the agent is ready", func() bool { return f.Missing(t) == "" })
	f.Source.Send(true, drivertest.PodOn("gone", "node1"))
	eventually.True(t, "the pod is named", named)
	if why := f.Missing(t); why != "" {
		t.Errorf("not ready: %s", why)
	}
	recorder := httptest.NewRecorder()
	f.Metrics().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, line := range []string{"felixlike_interfaces_lost 1\n", "felixlike_ready 1\n"} {
		if !strings.Contains(recorder.Body.String(), line) {
			t.Errorf("the metrics have no %q", line)
		}
	}
	if notices, err := f.Notices(t.Context()); err != nil || len(notices) != 1 || notices[0].Kind != noticeInterfaceLost {
		t.Errorf("notices %+v, %v", notices, err)
	}
	if err := f.Available(t.Context()); err != nil {
		t.Errorf("no pod can be added: %v", err)
	}
	again := gone
	again.Sandbox = "second"
	f.Updates <- func(update func(model.Update), _ func()) { update(model.AttachmentUpdate{Attachment: &again}) }
	eventually.True(t, "a pod with a new interface is not named", func() bool { return !named() })
}
