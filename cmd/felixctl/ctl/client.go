package ctl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/cmd/felixctl/agentflag"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/terminal"
)

// target is the agent that a command talks to, and how its answer is printed.
type target struct {
	agentflag.Target
	timeout time.Duration
	output  terminal.Output
}

// flags adds the flags for the agent and the timeout.
func (t *target) flags(c *cobra.Command, timeout time.Duration) {
	t.Flags(c)
	c.Flags().DurationVar(&t.timeout, "timeout", timeout, "give up waiting after so long")
}

// call runs f with a client of the agent, until the timeout or an interrupt.
func (t *target) call(ctx context.Context, f func(context.Context, *control.Client) error) error {
	if t.timeout <= 0 {
		return fmt.Errorf("--timeout: %s is not positive", t.timeout)
	}
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	err := f(ctx, control.NewClient(t.Socket()))
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("not done within %s (--timeout), see the agent's log: %w", t.timeout, err)
	}
	return t.explain(err)
}

// explain adds the remedy to an error of the connection to the agent.
func (t *target) explain(err error) error {
	switch {
	case control.NotRunning(err):
		return fmt.Errorf("no agent listens at %s: is it running on this node, or is --socket wrong? (in a lab: --lab NAME/NODE)", t.Socket())
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: only root may ask the agent: %w", t.Socket(), fs.ErrPermission)
	}
	return err
}
