package health

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fakeAgent struct {
	mu    sync.Mutex
	alive error
	ready Readiness
}

func (f *fakeAgent) set(alive error, ready Readiness) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.alive, f.ready = alive, ready
}

func (f *fakeAgent) Alive() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.alive
}

func (f *fakeAgent) Ready(context.Context) Readiness {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ready
}

// serve runs a server until the test ends.
func serve(t *testing.T, address string, agent Agent) *Server {
	t.Helper()
	s := New(address, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "felixlike_rules 7\n") })
	go func() { done <- s.Run(ctx, agent, metrics) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

func listening(t *testing.T, s *Server) string {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); strings.Contains(s.Status(), "("); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not serving: %s", s.Status())
		}
	}
	return s.Status()
}

func get(t *testing.T, address, path string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get("http://" + address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

func TestAnswers(t *testing.T) {
	agent := &fakeAgent{}
	address := listening(t, serve(t, "127.0.0.1:0", agent))
	for _, c := range []struct {
		name  string
		alive error
		ready Readiness
		path  string
		code  int
		body  string
	}{
		{"alive", nil, Readiness{}, "/healthz", 200, "ok\n"},
		{"stuck", errors.New("the loop has not moved for 12s"), Readiness{}, "/healthz", 503, "stuck: the loop has not moved for 12s\n"},
		{"ready", nil, Readiness{}, "/readyz", 200, "ready\n"},
		{"ready with a note", nil, Readiness{Notes: []string{"x is set aside"}}, "/readyz", 200, "ready\nnote: x is set aside\n"},
		{"not ready", nil, Readiness{Missing: []string{"a", "b"}, Notes: []string{"c"}}, "/readyz", 503, "not ready: a\nnot ready: b\nnote: c\n"},
		{"metrics", nil, Readiness{}, "/metrics", 200, "felixlike_rules 7\n"},
		{"root", nil, Readiness{}, "/", 200, "felixlike-agent serves /healthz, /readyz and /metrics\n"},
		{"elsewhere", nil, Readiness{}, "/debug/pprof/", 404, "404 page not found\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			agent.set(c.alive, c.ready)
			if code, body := get(t, address, c.path); code != c.code || body != c.body {
				t.Errorf("%s: %d %q, want %d %q", c.path, code, body, c.code, c.body)
			}
		})
	}
}

func TestTakenAddressIsToldAndNoError(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	s := serve(t, other.Addr().String(), &fakeAgent{})
	for deadline := time.Now().Add(5 * time.Second); !strings.Contains(s.Status(), "address already in use"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("status %q", s.Status())
		}
	}
}
