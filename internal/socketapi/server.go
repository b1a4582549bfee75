package socketapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/felixlike/felixlike/internal/rootsocket"
)

const (
	// answerTime is how long answers may take once the contexts of their requests ended.
	answerTime = 2 * time.Second
	// readTimeout ends connections that do not send the header of a request, and then its
	// body; idleTimeout those that send no other request. There is no ReadTimeout: it would
	// also end requests that wait for their answer (net/http watches for the caller's end
	// by reading).
	readTimeout = 10 * time.Second
	idleTimeout = 30 * time.Second
)

// Config describes a Server.
type Config struct {
	// Version is the version of the API, the first element of the paths of Routes.
	Version string
	Routes  []Route
	// MaxBody bounds the bytes of a request, MaxConnections the callers at a time; more of
	// them wait.
	MaxBody        int64
	MaxConnections int
	// Drain is how long requests may go on once the server ends.
	Drain time.Duration
	// Finish is how long Run waits, after that, for calls that go on without their caller;
	// 0 if it does not.
	Finish time.Duration
	// Strict refuses requests with unknown fields.
	Strict bool
	// CodeOf returns the code of an error; nil for Failed, with those of contexts.
	CodeOf func(error) Code
	// Done gets each call that was answered, but streams that succeeded.
	Done func(Call)
	// HTTP2 answers requests of HTTP/2, if there is one.
	HTTP2 http.Handler
	Log   *slog.Logger
}

// Call is one call that was answered.
type Call struct {
	Method, Path string
	// Request is the decoded body, nil if there was none.
	Request any
	Took    time.Duration
	Code    Code
	Err     error
}

// Server answers on one socket.
type Server struct {
	config Config
	// readTimeout is the constant, but for tests.
	readTimeout time.Duration
	calls       sync.WaitGroup
}

// NewServer returns a server that does not run yet.
func NewServer(c Config) *Server {
	if c.CodeOf == nil {
		c.CodeOf = codeOf
	}
	return &Server{config: c, readTimeout: readTimeout}
}

// Run answers root until ctx ends, and closes the listener.
func (s *Server) Run(ctx context.Context, listener net.Listener) error {
	requests, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	server := &http.Server{
		Handler:           s,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: s.readTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(s.config.Log.Handler(), slog.LevelDebug),
	}
	if s.config.HTTP2 != nil {
		server.Protocols = new(http.Protocols)
		server.Protocols.SetHTTP1(true)
		server.Protocols.SetUnencryptedHTTP2(true)
	}
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(netutil.LimitListener(rootsocket.RootOnly(listener), s.config.MaxConnections))
	}()
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	drained := time.AfterFunc(s.config.Drain, end)
	defer drained.Stop()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.Drain+answerTime)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		server.Close()
	}
	<-served
	s.finish()
	return nil
}

// finish waits for calls that go on after their caller is gone, as one that undoes its
// work does.
func (s *Server) finish() {
	if s.config.Finish == 0 {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.calls.Wait()
	}()
	select {
	case <-done:
	case <-time.After(s.config.Finish):
		s.config.Log.Warn("calls have not ended", "waited", s.config.Finish)
	}
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.calls.Add(1)
	defer s.calls.Done()
	if r.ProtoMajor != 1 && s.config.HTTP2 != nil {
		s.config.HTTP2.ServeHTTP(w, r)
		return
	}
	if r.Body != nil && r.Body != http.NoBody {
		// net/http reads the rest of a body before it sends the answer, also of a refusal.
		// A writer without deadlines is a test's.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.readTimeout))
	}
	call := Call{Method: r.Method, Path: r.URL.Path}
	began := time.Now()
	reply, streamed, err := s.answer(w, r, &call)
	if streamed && err == nil {
		return
	}
	status := http.StatusOK
	if err != nil {
		call.Err, call.Code = err, s.config.CodeOf(err)
		status, reply = call.Code.status(), ErrorBody{Error: err.Error(), Code: call.Code}
	}
	call.Took = time.Since(began)
	if s.config.Done != nil {
		s.config.Done(call)
	}
	s.write(w, status, reply)
}

// answer calls the route of a request.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, call *Call) (reply any, streamed bool, err error) {
	route, err := s.route(w, r)
	if err != nil {
		return nil, false, err
	}
	ctx, cancel, err := withTimeout(r)
	if err != nil {
		return nil, false, err
	}
	defer cancel()
	if route.stream != nil {
		return nil, true, route.stream(w, r.WithContext(ctx))
	}
	reply, call.Request, err = route.answer(ctx, s, w, r)
	return reply, false, err
}

// route returns the route of a request.
func (s *Server) route(w http.ResponseWriter, r *http.Request) (Route, error) {
	var all, methods []string
	for _, route := range s.config.Routes {
		below := strings.HasSuffix(route.path, "/")
		if route.path == r.URL.Path || below && strings.HasPrefix(r.URL.Path, route.path) {
			if route.method == r.Method {
				return route, nil
			}
			methods = append(methods, route.method)
		}
		if !below && strings.HasPrefix(route.path, "/"+s.config.Version+"/") {
			all = append(all, route.path)
		}
	}
	if len(methods) > 0 {
		w.Header().Set("Allow", strings.Join(methods, ", "))
		return Route{}, Refuse(WrongMethod, "%s %s: the method must be %s", r.Method, r.URL.Path, strings.Join(methods, " or "))
	}
	version, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if version != s.config.Version {
		return Route{}, Refuse(UnknownVersion, "unknown API version %q: this agent serves %s", version, s.config.Version)
	}
	return Route{}, Refuse(UnknownPath, "unknown path %s: this agent serves %s", r.URL.Path, strings.Join(all, ", "))
}

// withTimeout gives the request the deadline of its caller. The request's own context
// ends when the caller hangs up.
func withTimeout(r *http.Request) (context.Context, context.CancelFunc, error) {
	value := r.URL.Query().Get(timeoutParameter)
	if value == "" {
		ctx, cancel := context.WithCancel(r.Context())
		return ctx, cancel, nil
	}
	timeout, err := time.ParseDuration(value)
	if err != nil || timeout <= 0 {
		return nil, nil, Refuse(Invalid, "timeout %q: must be a positive duration such as 10s", value)
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	return ctx, cancel, nil
}

func (s *Server) write(w http.ResponseWriter, status int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		s.config.Log.Error("cannot encode answer", "error", err)
		status, data = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be encoded","code":"failed"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(append(data, '\n')); err != nil {
		s.config.Log.Debug("caller is gone", "error", err)
	}
}

// Route is one call that a server answers.
type Route struct {
	method, path string
	// answer returns the answer and the decoded request; nil if the route is a stream.
	answer func(ctx context.Context, s *Server, w http.ResponseWriter, r *http.Request) (reply, request any, err error)
	stream func(w http.ResponseWriter, r *http.Request) error
}
