package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"github.com/felixlike/felixlike/felixlike/health"
	"github.com/felixlike/felixlike/internal/rootsocket"
	"github.com/felixlike/felixlike/model"
)

const (
	// maxBody bounds a request: 1 MiB names some ten thousand pods.
	maxBody = 1 << 20
	// shutdownGrace is how long answers may take once the agent ends.
	shutdownGrace = 2 * time.Second
	// headerTimeout ends connections that never send a request, idleTimeout those
	// that send no other one. There is no ReadTimeout: it would also end requests
	// that wait for their answer (net/http watches for the caller's end by reading).
	headerTimeout = 5 * time.Second
	idleTimeout   = 30 * time.Second
	// maxConnections bounds the callers at a time; more of them wait.
	maxConnections = 128
)

// Serve answers on the socket until ctx ends, then removes the socket. It creates the directory if it is
// missing (mode 0700). It fails at once if another agent serves there, and replaces the socket of a dead one.
func Serve(ctx context.Context, socketPath string, agent Agent, log *slog.Logger) error {
	listener, err := rootsocket.Listen(socketPath)
	if err != nil {
		return fmt.Errorf("control socket %s: %w", socketPath, err)
	}
	defer listener.Close()
	server := &http.Server{
		Handler:           &handler{agent: agent, probes: health.Probes(agent), log: log},
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(netutil.LimitListener(rootsocket.RootOnly(listener), maxConnections)) }()
	log.Info("serving", "socket", socketPath)
	select {
	case err := <-served:
		return fmt.Errorf("control socket %s: serve: %w", socketPath, err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		server.Close()
	}
	<-served
	return nil
}

// handler maps requests to calls of the agent.
type handler struct {
	agent  Agent
	probes http.Handler
	log    *slog.Logger
}

// ServeHTTP answers one request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	reply, err := h.answer(w, r)
	if err == errAnswered {
		return
	}
	if err != nil {
		code := statusCode(err)
		h.log.Debug("request refused", "method", r.Method, "path", r.URL.Path, "code", code, "error", err)
		h.write(w, code, errorReply{Error: err.Error()})
		return
	}
	h.write(w, http.StatusOK, reply)
}

func (h *handler) answer(w http.ResponseWriter, r *http.Request) (any, error) {
	want, err := methodOf(r.URL.Path)
	if err != nil {
		return nil, err
	}
	if r.Method != want {
		w.Header().Set("Allow", want)
		return nil, refuse(http.StatusMethodNotAllowed, "%s %s: the method must be %s", r.Method, r.URL.Path, want)
	}
	switch {
	case strings.HasPrefix(r.URL.Path, profilesPath):
		profile(w, r)
		return nil, errAnswered
	case r.URL.Path == health.LivePath, r.URL.Path == health.ReadyPath:
		h.probes.ServeHTTP(w, r)
		return nil, errAnswered
	}
	ctx, cancel, err := withTimeout(r)
	if err != nil {
		return nil, err
	}
	defer cancel()
	switch r.URL.Path {
	case statusPath:
		return h.agent.Status(), nil
	case objectsPath:
		return h.agent.Objects(ctx)
	case modelPath:
		return h.agent.Model(ctx)
	case hitsPath:
		return h.agent.Hits(ctx)
	case connectionsPath:
		return h.agent.Connections(ctx)
	case dropsPath:
		if err := h.follow(w, r.WithContext(ctx)); err != nil {
			return nil, err
		}
		return nil, errAnswered
	case syncPath:
		pods, err := readPods(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			return nil, err
		}
		return revision(h.agent.Sync(ctx, pods))
	case backendPath:
		var request backendRequest
		if err := readBody(http.MaxBytesReader(w, r.Body, maxBody), &request); err != nil {
			return nil, err
		}
		return request, h.agent.SetBackend(ctx, request.Backend)
	default:
		wanted, err := strconv.ParseUint(r.URL.Query().Get("revision"), 10, 64)
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "revision %q: must be an unsigned number", r.URL.Query().Get("revision"))
		}
		return revision(h.agent.WaitProgrammed(ctx, wanted))
	}
}

// errAnswered says that there is nothing left to answer.
var errAnswered = errors.New("answered")

// methodOf returns the method that a path is asked with.
func methodOf(path string) (string, error) {
	if strings.HasPrefix(path, profilesPath) {
		return http.MethodGet, nil
	}
	switch path {
	case statusPath, objectsPath, modelPath, hitsPath, connectionsPath, dropsPath, programmedPath, health.LivePath, health.ReadyPath:
		return http.MethodGet, nil
	case syncPath, backendPath:
		return http.MethodPost, nil
	}
	version, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if version != Version {
		return "", refuse(http.StatusNotFound, "unknown API version %q: this agent serves %s", version, Version)
	}
	all := []string{statusPath, objectsPath, modelPath, hitsPath, connectionsPath, dropsPath, syncPath, programmedPath, backendPath}
	return "", refuse(http.StatusNotFound, "unknown path %s: this agent serves %s", path, strings.Join(all, ", "))
}

// withTimeout gives the request the deadline that its caller has. The
// request's own context ends when the caller hangs up.
func withTimeout(r *http.Request) (context.Context, context.CancelFunc, error) {
	value := r.URL.Query().Get("timeout")
	if value == "" {
		ctx, cancel := context.WithCancel(r.Context())
		return ctx, cancel, nil
	}
	timeout, err := time.ParseDuration(value)
	if err != nil || timeout <= 0 {
		return nil, nil, refuse(http.StatusBadRequest, "timeout %q: must be a positive duration such as 10s", value)
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	return ctx, cancel, nil
}

// readBody decodes the one JSON value of a request. A body that is empty is
// the zero value.
func readBody(body io.Reader, into any) error {
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return refuse(http.StatusBadRequest, "request body: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return refuse(http.StatusBadRequest, "request body: more than one JSON value")
	}
	return nil
}

func readPods(body io.Reader) ([]model.PodID, error) {
	var request syncRequest
	if err := readBody(body, &request); err != nil {
		return nil, err
	}
	pods := make([]model.PodID, 0, len(request.Pods))
	for _, name := range request.Pods {
		pod, err := ParsePod(name)
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "request body: %w", err)
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

func revision(programmed uint64, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return revisionReply{Revision: programmed}, nil
}

func (h *handler) write(w http.ResponseWriter, code int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		h.log.Error("cannot encode answer", "error", err)
		http.Error(w, `{"error":"the answer cannot be encoded"}`, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if _, err := w.Write(append(data, '\n')); err != nil {
		h.log.Debug("caller is gone", "error", err)
	}
}

// refusal is an error with an HTTP status.
type refusal struct {
	code int
	err  error
}

func refuse(code int, format string, args ...any) error {
	return &refusal{code: code, err: fmt.Errorf(format, args...)}
}

// Error returns the reason.
func (e *refusal) Error() string { return e.err.Error() }

// Unwrap returns the wrapped reason.
func (e *refusal) Unwrap() error { return e.err }

// statusCode returns the HTTP status of an error of the agent or of the server.
func statusCode(err error) int {
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		return refused.code
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	case errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
