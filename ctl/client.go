package ctl

import (
	"context"
	"fmt"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
)

// target is the agent that a command talks to.
type target struct {
	socket  string
	timeout time.Duration
}

// flags adds the flags that say which agent is meant, and how long to wait.
func (t *target) flags(c *cobra.Command, timeout time.Duration) {
	c.Flags().StringVar(&t.socket, "socket", filepath.Join(config.Defaults().RunDir, felixlike.ControlSocket), "control socket of the agent")
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
	err := f(ctx, control.NewClient(t.socket))
	if control.NotRunning(err) {
		return fmt.Errorf("no agent listens at %s: is it running on this node, or is --socket wrong? (%w)", t.socket, err)
	}
	return err
}
