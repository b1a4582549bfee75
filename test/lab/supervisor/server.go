package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/labs"
	"github.com/felixlike/felixlike/test/lab"
)

// Run makes a lab, tells ready that it is there, serves it until ctx ends and
// takes it down. From then on the process's standard error is the lab's log.
func Run(ctx context.Context, config lab.Config, ready func()) error {
	l, err := lab.Up(ctx, config)
	if err != nil {
		return err
	}
	err = serve(ctx, l, ready)
	return errors.Join(err, l.Down())
}

func serve(ctx context.Context, l *lab.Lab, ready func()) error {
	root := l.Root()
	if err := logToFile(logPath(root, l.Name())); err != nil {
		return err
	}
	listener, err := net.Listen("unix", labs.Socket(root, l.Name()))
	if err != nil {
		return fmt.Errorf("supervisor: %w", err)
	}
	server := &http.Server{Handler: handler(l), ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	ready()
	select {
	case <-ctx.Done():
		return server.Close()
	case err := <-failed:
		return fmt.Errorf("supervisor: %w", err)
	}
}

func logToFile(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("supervisor log: %w", err)
	}
	defer file.Close()
	if err := unix.Dup3(int(file.Fd()), int(os.Stderr.Fd()), 0); err != nil {
		return fmt.Errorf("supervisor log: %w", err)
	}
	return nil
}

func handler(l *lab.Lab) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+statePath, func(w http.ResponseWriter, _ *http.Request) { answer(w, l.State(), nil) })
	mux.HandleFunc("POST "+statePath, func(w http.ResponseWriter, r *http.Request) {
		var s lab.State
		err := json.NewDecoder(r.Body).Decode(&s)
		if err == nil {
			err = l.SetState(r.Context(), s)
		}
		answer(w, struct{}{}, err)
	})
	mux.HandleFunc("POST "+probePath, func(w http.ResponseWriter, r *http.Request) {
		var request probeRequest
		err := json.NewDecoder(r.Body).Decode(&request)
		var results []lab.Result
		if err == nil {
			results = l.Probe(r.Context(), request.Probes, request.Timeout)
		}
		answer(w, results, err)
	})
	mux.HandleFunc("POST "+restartPath, func(w http.ResponseWriter, r *http.Request) {
		var request restartRequest
		err := json.NewDecoder(r.Body).Decode(&request)
		if err == nil {
			err = l.RestartAgent(r.Context(), request.Node)
		}
		answer(w, struct{}{}, err)
	})
	mux.HandleFunc("GET "+labs.StatusPath, func(w http.ResponseWriter, r *http.Request) { answer(w, l.Status(r.Context()), nil) })
	return mux
}

func answer(w http.ResponseWriter, body any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(http.StatusUnprocessableEntity)
		body = labs.ErrorBody{Error: err.Error()}
	}
	// The client sees a body that could not be written in full as bad JSON.
	_ = json.NewEncoder(w).Encode(body)
}
