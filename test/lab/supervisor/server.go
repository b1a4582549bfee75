package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/internal/socketapi"
	"github.com/felixlike/felixlike/test/lab"
)

// Run makes a lab, calls ready, serves the lab until ctx ends and
// takes it down. From then on the process's standard error is the lab's log.
func Run(ctx context.Context, config lab.Config, ready func()) error {
	l, err := lab.Up(ctx, config)
	if err != nil {
		return err
	}
	err = serve(ctx, l, ready)
	return errors.Join(err, l.Down())
}

const (
	// maxBody bounds a request: the state of a lab names all objects of a cluster.
	maxBody = 1 << 30
	// maxConnections bounds the callers at a time; more of them wait.
	maxConnections = 128
)

func serve(ctx context.Context, l *lab.Lab, ready func()) error {
	root := l.Root()
	if err := logToFile(logPath(root, l.Name())); err != nil {
		return err
	}
	listener, err := net.Listen("unix", labs.Socket(root, l.Name()))
	if err != nil {
		return fmt.Errorf("supervisor: %w", err)
	}
	server := socketapi.NewServer(socketapi.Config{
		Version: labs.APIVersion, Routes: routes(l), MaxBody: maxBody, MaxConnections: maxConnections, Log: slog.New(slog.DiscardHandler),
	})
	ready()
	if err := server.Run(ctx, listener); err != nil {
		return fmt.Errorf("supervisor: %w", err)
	}
	return nil
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

func routes(l *lab.Lab) []socketapi.Route {
	return []socketapi.Route{
		socketapi.Get(labs.StatusPath, func(ctx context.Context, _ url.Values) (labs.Status, error) { return l.Status(ctx), nil }),
		socketapi.Get(statePath, func(context.Context, url.Values) (lab.State, error) { return l.State(), nil }),
		socketapi.Post(statePath, func(ctx context.Context, s *lab.State) (struct{}, error) { return struct{}{}, l.SetState(ctx, *s) }),
		socketapi.Post(probePath, func(ctx context.Context, r *probeRequest) ([]lab.Result, error) {
			return l.Probe(ctx, r.Probes, r.Timeout), nil
		}),
		socketapi.Post(restartPath, func(ctx context.Context, r *restartRequest) (struct{}, error) {
			return struct{}{}, l.RestartAgent(ctx, r.Node)
		}),
	}
}
