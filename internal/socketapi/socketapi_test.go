package socketapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/felixlike/felixlike/internal/panics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type body struct {
	Name string `json:"name"`
}

// serve runs a server with the routes of these tests.
func serve(t *testing.T, change func(*Server)) (path string, stop func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may use the socket: not run as another user")
	}
	path = filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(Config{
		Version: "v1", MaxBody: 100, MaxConnections: 10, Log: slog.New(slog.DiscardHandler),
		Routes: []Route{
			Post("/v1/echo", func(_ context.Context, b *body) (*body, error) { return b, nil }),
			Get("/v1/echo", func(_ context.Context, q url.Values) (body, error) { return body{q.Get("name")}, nil }),
			Get("/v1/fail", func(context.Context, url.Values) (body, error) { return body{}, errors.New("no luck") }),
			Post("/v1/panic", func(context.Context, *body) (body, error) { panic("nobody expects it") }),
			Get("/v1/bad", func(context.Context, url.Values) (func(), error) { return func() {}, nil }),
			Post("/v1/wait", func(ctx context.Context, _ *body) (body, error) {
				<-ctx.Done()
				return body{}, fmt.Errorf("still waiting: %w", ctx.Err())
			}),
			Stream("/v1/text/", Raw(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })),
			Stream("/v1/nothing", func(http.ResponseWriter, *http.Request) error { return Refuse(NotReady, "not yet") }),
		},
	})
	if change != nil {
		change(s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, listener) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return path, stop
}

func TestCalls(t *testing.T) {
	path, _ := serve(t, nil)
	c := NewClient(path)
	var got body
	if err := c.Call(t.Context(), http.MethodPost, "/v1/echo", nil, body{"a"}, &got); err != nil || got.Name != "a" {
		t.Error(got, err)
	}
	if err := c.Call(t.Context(), http.MethodGet, "/v1/echo", url.Values{"name": {"b"}}, nil, &got); err != nil || got.Name != "b" {
		t.Error(got, err)
	}
	answer, err := c.Open(t.Context(), "/v1/text/x")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Close()
	if text, err := io.ReadAll(answer); err != nil || string(text) != "/v1/text/x" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := c.Open(t.Context(), "/v1/nothing"); errorCode(err) != NotReady || err.Error() != "not yet" {
		t.Error(err)
	}
}

func errorCode(err error) Code {
	var refused *Error
	if !errors.As(err, &refused) {
		return "no refusal"
	}
	return refused.Code
}

func TestRefusals(t *testing.T) {
	for _, strict := range []bool{false, true} {
		path, _ := serve(t, func(s *Server) { s.config.Strict = strict })
		raw := &http.Client{Transport: NewClient(path).http.Transport}
		unknownField := Code("")
		if strict {
			unknownField = Invalid
		}
		for _, c := range []struct {
			method, target, body string
			status               int
			code                 Code
			want                 string
		}{
			{"GET", "/v2/echo", "", 404, UnknownVersion, `unknown API version "v2": this agent serves v1`},
			{"GET", "/", "", 404, UnknownVersion, `unknown API version ""`},
			{"GET", "/v1/other", "", 404, UnknownPath, "unknown path /v1/other: this agent serves /v1/echo, "},
			{"PUT", "/v1/echo", "", 405, WrongMethod, "the method must be POST or GET"},
			{"GET", "/v1/echo?timeout=-1s", "", 400, Invalid, `timeout "-1s"`},
			{"POST", "/v1/wait?timeout=1ms", "", 504, Deadline, "deadline exceeded"},
			{"POST", "/v1/echo", `{} {}`, 400, Invalid, "more than one JSON value"},
			{"POST", "/v1/echo", `{`, 400, Invalid, "request body"},
			{"POST", "/v1/echo", `{"name": "` + strings.Repeat("x", 100) + `"}`, 413, TooLarge, "more than 100 bytes"},
			{"POST", "/v1/echo", `{"name": "x"}` + strings.Repeat(" ", 100), 413, TooLarge, "more than 100 bytes"},
			{"POST", "/v1/echo", `{"new": 1}`, map[bool]int{false: 200, true: 400}[strict], unknownField, ""},
			{"POST", "/v1/panic", "", 500, Failed, "panic: nobody expects it"},
			{"GET", "/v1/fail", "", 500, Failed, "no luck"},
			{"GET", "/v1/bad", "", 500, Failed, "cannot be encoded"},
		} {
			request, err := http.NewRequestWithContext(t.Context(), c.method, "http://agent"+c.target, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			response, err := raw.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			var got ErrorBody
			if err := json.NewDecoder(response.Body).Decode(&got); err != nil {
				t.Error(err)
			}
			response.Body.Close()
			if response.StatusCode != c.status || got.Code != c.code || !strings.Contains(got.Error, c.want) {
				t.Errorf("%s %s, strict %v: %d %+v, want %d %s %q", c.method, c.target, strict, response.StatusCode, got, c.status, c.code, c.want)
			}
		}
	}
}

// TestDeadline: the caller's time ends the request on the server a little before, so the
// server's reason arrives.
func TestDeadline(t *testing.T) {
	path, _ := serve(t, nil)
	if err := stillWaiting(t, path, 300*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) || errorCode(err) != Deadline {
		t.Error(err)
	}
}

// stillWaiting returns the error of a call that waits until the caller's time is over. One in
// which the machine leaves no time for the server's reason is tried again, longer.
func stillWaiting(t *testing.T, path string, long time.Duration) error {
	t.Helper()
	for ; ; long *= 4 {
		ctx, cancel := context.WithTimeout(t.Context(), long)
		err := NewClient(path).Call(ctx, http.MethodPost, "/v1/wait", nil, body{}, nil)
		cancel()
		if err != nil && strings.Contains(err.Error(), "still waiting: context deadline exceeded") {
			return err
		}
		if !errors.Is(err, context.DeadlineExceeded) || long > 10*time.Second {
			t.Fatalf("want the server's reason: %v", err)
		}
	}
}

// TestCallerHangsUp: the end of a caller ends its request.
func TestCallerHangsUp(t *testing.T) {
	calls := make(chan Call, 1)
	path, _ := serve(t, func(s *Server) { s.config.Done = func(c Call) { calls <- c } })
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "POST /v1/wait HTTP/1.1\r\nHost: agent\r\nContent-Length: 12\r\n\r\n{\"name\":\"a\"}"); err != nil {
		t.Fatal(err)
	}
	select {
	case c := <-calls:
		t.Fatalf("%+v", c)
	case <-time.After(50 * time.Millisecond):
	}
	conn.Close()
	select {
	case c := <-calls:
		if r, _ := c.Request.(*body); r == nil || r.Name != "a" || c.Code != Canceled {
			t.Errorf("%+v", c)
		}
	case <-time.After(10 * time.Second):
		t.Error("the request does not end")
	}
}

// TestSlowCallers: connections end that send no header, or no body. One that waits for its
// answer stays.
func TestSlowCallers(t *testing.T) {
	// Longer than a machine keeps a process from sending what it has to say.
	const short = time.Second
	path, _ := serve(t, func(s *Server) { s.readTimeout = short })
	for text, want := range map[string]string{
		"": "", "POST /v1/ec": "", "POST /v1/nosuch HTTP/1.1\r\nHost: agent\r\nContent-Length: 10\r\n\r\n": `"code":"unknown-path"`, "POST /v1/echo HTTP/1.1\r\nHost: agent\r\nContent-Length: 2\r\n\r\n{": `"code":"deadline"`,
	} {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if answer, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(string(answer), want) {
			t.Errorf("%q: read %q, %v, want %q", text, answer, err, want)
		}
	}
	_ = stillWaiting(t, path, 2*short)
}

// TestDrain: requests go on for a time once the server ends, and are answered then.
func TestDrain(t *testing.T) {
	const drain = 200 * time.Millisecond
	began := make(chan struct{})
	path, stop := serve(t, func(s *Server) {
		s.config.Drain = drain
		s.config.Routes = append(s.config.Routes, Post("/v1/long", func(ctx context.Context, _ *body) (body, error) {
			close(began)
			<-ctx.Done()
			return body{}, ctx.Err()
		}))
	})
	ended := make(chan error, 1)
	go func() {
		ended <- NewClient(path).Call(context.Background(), http.MethodPost, "/v1/long", nil, body{}, nil)
	}()
	<-began
	at := time.Now()
	stop()
	if err := <-ended; errorCode(err) != Canceled || time.Since(at) < drain {
		t.Errorf("after %s: %v", time.Since(at), err)
	}
	if err := NewClient(path).Call(t.Context(), http.MethodGet, "/v1/echo", nil, nil, nil); !NotRunning(err) {
		t.Error(err)
	}
}

// TestFinish: Run waits for a call that goes on after its context and its connection ended.
func TestFinish(t *testing.T) {
	began := make(chan struct{})
	var finished atomic.Bool
	path, stop := serve(t, func(s *Server) {
		s.config.Finish = time.Minute
		s.config.Routes = append(s.config.Routes, Post("/v1/undo", func(ctx context.Context, _ *body) (body, error) {
			close(began)
			<-ctx.Done()
			time.Sleep(answerTime + 200*time.Millisecond) // longer than answers may take
			finished.Store(true)
			return body{}, ctx.Err()
		}))
	})
	go func() { _ = NewClient(path).Call(context.Background(), http.MethodPost, "/v1/undo", nil, body{}, nil) }()
	<-began
	stop()
	if !finished.Load() {
		t.Error("Run has ended before the call")
	}
}

// TestPanicIsTold: the log of a panic can have its stack.
func TestPanicIsTold(t *testing.T) {
	calls := make(chan Call, 1)
	path, _ := serve(t, func(s *Server) { s.config.Done = func(c Call) { calls <- c } })
	if err := NewClient(path).Call(t.Context(), http.MethodPost, "/v1/panic", nil, body{}, nil); errorCode(err) != Failed {
		t.Error(err)
	}
	if c := <-calls; !strings.Contains(panics.Stack(c.Err), "TestPanicIsTold") && !strings.Contains(panics.Stack(c.Err), "socketapi.serve") {
		t.Errorf("%+v", c)
	}
}

// TestOtherProtocol: a client learns that the other end speaks another protocol, whether
// that end speaks first or answers.
func TestOtherProtocol(t *testing.T) {
	for first, want := range map[string]string{
		"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00\x40\x00": ErrNotHTTP.Error(),
		"SSH-2.0-x\r\n": ErrNotHTTP.Error(),
		"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nabc": "unexpected answer 404 Not Found",
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc":        "decode answer: ",
	} {
		path := filepath.Join(t.TempDir(), "s")
		listener, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan struct{})
		go func() {
			defer close(served)
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				speaksFirst := first[0] != 'H'
				if speaksFirst {
					_, _ = io.WriteString(conn, first)
				}
				_, _ = conn.Read(make([]byte, 1000))
				if !speaksFirst {
					_, _ = io.WriteString(conn, first)
				}
				conn.Close()
			}
		}()
		for range 20 {
			var got body
			if err := NewClient(path).Call(t.Context(), http.MethodPost, "/v1/echo", nil, body{}, &got); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%q: %v, want %q", first, err, want)
			}
		}
		listener.Close()
		<-served
	}
}
