package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/felixlike/felixlike/test/eventually"
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
	return run(t, New(address, slog.New(slog.DiscardHandler)), agent)
}

func run(t *testing.T, s *Server, agent Agent) *Server {
	t.Helper()
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
	eventually.True(t, "serving", func() bool { return !strings.Contains(s.Status(), "(") }, s.Status)
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

// TestNoOtherOrigin: a page of another site cannot read the answers, because none allows an origin.
func TestNoOtherOrigin(t *testing.T) {
	address := listening(t, serve(t, "127.0.0.1:0", &fakeAgent{}))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, method := range []string{http.MethodGet, http.MethodOptions} {
		for _, path := range []string{"/", "/healthz", "/readyz", "/metrics"} {
			request, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Origin", "http://example.com")
			request.Header.Set("Access-Control-Request-Method", http.MethodGet)
			answer, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			for name := range answer.Header {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("%s %s answers with %s", method, path, name)
				}
			}
		}
	}
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
		{"ready with a note", nil, Readiness{Notes: []string{"x is quarantined"}}, "/readyz", 200, "ready\nnote: x is quarantined\n"},
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

func TestTakenAddressIsReportedAndNoError(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	s := serve(t, other.Addr().String(), &fakeAgent{})
	want := fmt.Sprintf("address already in use by process %d (health.test) of user %d)", os.Getpid(), os.Getuid())
	eventually.True(t, "status is "+want, func() bool { return strings.Contains(s.Status(), want) }, s.Status)
}

// TestIdleCallers: a caller that opens connections and says nothing gets a few of them,
// and others are answered beside it, kubelet first of all.
func TestIdleCallers(t *testing.T) {
	address := listening(t, serve(t, "0.0.0.0:0", &fakeAgent{}))
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	idle := func(n int, from net.IP) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}
		for range n {
			conn, err := d.Dial("tcp", "127.0.0.1:"+port)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
		}
	}
	before := descriptors(t)
	answers := func(when string) {
		t.Helper()
		if code, _ := get(t, "127.0.0.1:"+port, "/healthz"); code != http.StatusOK {
			t.Errorf("%s: %d", when, code)
		}
	}
	idle(1100, net.IPv4(127, 0, 1, 1))
	answers("beside one that opens connections")
	// The callers' ends are the test's own.
	if served := descriptors(t) - before - 1100; served > maxPerSource+10 {
		t.Errorf("one caller has %d connections", served)
	}
	for i := range 30 {
		idle(50, net.IPv4(127, 0, 2, byte(i)))
	}
	answers("beside many that open connections")
	if served := descriptors(t) - before - 2600; served > maxConnections+10 {
		t.Errorf("callers have %d connections", served)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestSilentCallers are cut off: without a request, with half of one, and behind one.
func TestSilentCallers(t *testing.T) {
	const short = 20 * time.Millisecond
	never := time.Hour
	for name, c := range map[string]struct {
		timeouts timeouts
		says     string
	}{
		"nothing":   {timeouts{header: short, read: never, write: never, idle: never}, ""},
		"half":      {timeouts{header: never, read: short, write: never, idle: never}, "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"},
		"no second": {timeouts{header: never, read: never, write: never, idle: short}, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := New("127.0.0.1:0", slog.New(slog.DiscardHandler))
			s.timeouts = c.timeouts
			address := listening(t, run(t, s, &fakeAgent{}))
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, c.says); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, conn); err != nil {
				t.Errorf("%v, want the end of the connection", err)
			}
		})
	}
	if d := defaultTimeouts(); min(d.header, d.read, d.write, d.idle) == 0 {
		t.Errorf("by default a caller may be silent for ever: %+v", d)
	}
}
