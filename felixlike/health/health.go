// Package health answers probes and scrapes over HTTP: /healthz reports whether the agent's loop moves
// (restart it if not), /readyz whether the datastore's objects are programmed, /metrics the metrics. Answers
// are text for people, with the reason of a failure. The control socket answers the same two probes (Probes).
//
// The package asks an Agent for all answers and holds no state but that of its listener. It is tested over
// real sockets.
//
// The server listens at healthAddress (127.0.0.1:10288; empty turns it off). If the
// address is taken, the agent logs it, shows it in the status and tries again; policy
// stays in force.
//
//	path       200 if                                503, with the reason, if
//	/healthz   the loop moved in the last 10 s       it did not, a stage is more than 10 s past
//	           (it moves every 2 s, also while       its deadline, or a manager has panicked:
//	           stages run)                           restart the agent
//	/readyz    everything known is programmed        the first listing is not complete, this node
//	                                                 is unknown, the last apply failed, or a change
//	                                                 has waited for more than 5 s, or the host's
//	                                                 side of the gateway port has not been as
//	                                                 desired for more than 5 s, or another CNI's
//	                                                 configuration comes first. Quarantined
//	                                                 objects are reported, and leave it ready
//	/metrics   always
//
// The DaemonSet's probes use the control socket, with "felixlike-agent probe live" and
// "probe ready": they work with any healthAddress, and no other program can answer in
// place of the agent. A Prometheus on another machine needs healthAddress: <node's
// address>:10288. The answers hold no secret, and no request changes anything. The
// server accepts 32 connections at a time from one address, 512 from all other machines
// and pods together, and another 128 from the node itself. It closes a silent connection
// after at most 90 s. The control socket and the CNI socket, both root's, take 128 and
// 512 callers at a time; further callers wait.
package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// listenRetry is the time between two attempts to listen.
	listenRetry = 10 * time.Second
	// readyTimeout bounds how long /readyz waits for the agent; kubelet's probes
	// give up after a second by default.
	readyTimeout  = 900 * time.Millisecond
	shutdownGrace = time.Second
	// maxHeader bounds a request; requests have no more than a path.
	maxHeader = 8 << 10
)

// timeouts end connections that do nothing: for reading a request's header and all of
// it, for writing the answer, between two requests.
type timeouts struct{ header, read, write, idle time.Duration }

func defaultTimeouts() timeouts {
	// Prometheus scrapes once a minute by default.
	return timeouts{header: 5 * time.Second, read: 10 * time.Second, write: 30 * time.Second, idle: 90 * time.Second}
}

// Agent is the server's view of the agent.
type Agent interface {
	// Alive returns why the agent is stuck, or nil. It answers at once.
	Alive() error
	// Ready reports whether the known objects are programmed.
	Ready(ctx context.Context) Readiness
}

// Readiness is the answer to the probe of readiness.
type Readiness struct {
	// Missing are the reasons why the agent is not ready; it is ready if the list is empty.
	Missing []string
	// Notes are problems that leave the agent ready.
	Notes []string
}

// Server serves one agent.
type Server struct {
	address  string
	timeouts timeouts
	log      *slog.Logger

	mu    sync.Mutex
	state string
}

// New returns a server for an address such as 127.0.0.1:10288. Run starts to listen. Without
// an address, Run must not be called.
func New(address string, log *slog.Logger) *Server {
	s := &Server{address: address, timeouts: defaultTimeouts(), log: log}
	if address != "" {
		s.state = address + " (not serving yet)"
	}
	return s
}

// Status returns the server's address, or the reason why it does not listen; it is empty
// without an address.
func (s *Server) Status() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func (s *Server) setStatus(state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
}

// Run serves until ctx ends. If it cannot listen on the address, it tries again and returns no
// error: policy does not depend on it.
func (s *Server) Run(ctx context.Context, agent Agent, metrics http.Handler) error {
	handler := newHandler(agent, metrics)
	for {
		err := s.serve(ctx, handler)
		if ctx.Err() != nil {
			return nil
		}
		s.setStatus(fmt.Sprintf("%s (not serving: %v)", s.address, err))
		s.log.Error("probes and metrics are not served", "address", s.address, "error", err, "retry", listenRetry)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(listenRetry):
		}
	}
}

func (s *Server) serve(ctx context.Context, handler http.Handler) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.address)
	if errors.Is(err, syscall.EADDRINUSE) {
		if who := holder(s.address); who != "" {
			err = fmt.Errorf("%w by %s", err, who)
		}
	}
	if err != nil {
		return err
	}
	address := listener.Addr().String()
	s.setStatus(address)
	s.log.Info("serving probes and metrics", "address", address)
	server := &http.Server{
		Handler: handler, MaxHeaderBytes: maxHeader, ReadHeaderTimeout: s.timeouts.header,
		ReadTimeout: s.timeouts.read, WriteTimeout: s.timeouts.write, IdleTimeout: s.timeouts.idle,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(Limit(listener)) }()
	select {
	case err := <-served:
		return errors.Join(err, server.Close())
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		err = errors.Join(err, server.Close())
		s.log.Debug("a caller was cut off", "error", err)
	}
	<-served
	return nil
}

// Paths of the probes.
const (
	LivePath  = "/healthz"
	ReadyPath = "/readyz"
)

// Probes answers the two probes, with status 200 if all is well and 503 if not.
func Probes(agent Agent) http.Handler { return probes(agent) }

func newHandler(agent Agent, metrics http.Handler) http.Handler {
	mux := probes(agent)
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "felixlike-agent serves /healthz, /readyz and /metrics")
	})
	return mux
}

func probes(agent Agent) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+LivePath, func(w http.ResponseWriter, _ *http.Request) {
		if err := agent.Alive(); err != nil {
			answer(w, http.StatusServiceUnavailable, "stuck: "+err.Error())
			return
		}
		answer(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET "+ReadyPath, func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		ready := agent.Ready(ctx)
		var lines []string
		code := http.StatusOK
		if len(ready.Missing) == 0 {
			lines = append(lines, "ready")
		}
		for _, reason := range ready.Missing {
			code = http.StatusServiceUnavailable
			lines = append(lines, "not ready: "+reason)
		}
		for _, note := range ready.Notes {
			lines = append(lines, "note: "+note)
		}
		answer(w, code, lines...)
	})
	return mux
}

func answer(w http.ResponseWriter, code int, lines ...string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	// A caller that is gone needs no answer.
	_, _ = fmt.Fprintln(w, strings.Join(lines, "\n"))
}
