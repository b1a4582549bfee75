package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/cmd/felixctl/agentflag"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/live"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
)

// agent chooses the node.
type agent struct {
	agentflag.Target
	timeout time.Duration
}

func (a *agent) flags(c *cobra.Command) {
	a.Flags(c)
	a.LabFlags(c)
	c.Flags().DurationVar(&a.timeout, "timeout", time.Minute, "give up after so long")
}

// call runs f until the timeout or an interrupt.
func (a *agent) call(ctx context.Context, f func(context.Context) error) error {
	if a.timeout <= 0 {
		return fmt.Errorf("--timeout: %s is not positive", a.timeout)
	}
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	err := f(ctx)
	switch {
	case control.NotRunning(err):
		return fmt.Errorf("no agent listens at %s: is it running, or is --socket wrong? (in a lab: --lab NAME/NODE) With --backend, live state is read without one; files, snapshots and folders of manifests need none", a.Socket())
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		return timeoutError(a.timeout)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("only root may ask the agent, and the kernel: %w", err)
	}
	return err
}

// timeoutError has the time after which a command has given up.
type timeoutError time.Duration

func (e timeoutError) Error() string {
	return fmt.Sprintf("not done within %s (--timeout)", time.Duration(e))
}

// Unwrap says what it is.
func (timeoutError) Unwrap() error { return context.DeadlineExceeded }

func (a *agent) client() *control.Client { return control.NewClient(a.Socket()) }

// withoutAgent reads this machine without a model: the objects have no names.
func withoutAgent(ctx context.Context, o live.Options) (*reading, error) {
	defaults := config.Defaults()
	parts, err := live.Read(ctx, live.Node{OVSRunDir: defaults.OVSRunDir, Bridge: defaults.Bridge}, o)
	return &reading{parts: parts}, err
}

// reading is the state of a node, as read by the tools.
type reading struct {
	// model is nil if no agent runs.
	model *control.Model
	parts []live.Part
	// busy reports that the agent was programming meanwhile.
	busy bool
}

// readings bounds how often a node is read again because its agent was programming.
const readings = 5

// read reads the node at a moment at which its agent has nothing to do, if there is
// one.
func (a *agent) read(ctx context.Context, o live.Options) (*reading, error) {
	client := a.client()
	pid, err := client.PID(ctx)
	if control.NotRunning(err) && a.Lab == "" && o.Backend != "" {
		return withoutAgent(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	r := &reading{}
	for range readings {
		before, err := client.Status(ctx)
		if err != nil {
			return nil, err
		}
		m, err := client.Model(ctx)
		if err != nil {
			return nil, err
		}
		r.model = &m
		now := o
		if now.Backend == "" {
			now.Backend = m.Backend
		}
		node := live.Node{NetNS: fmt.Sprintf("/proc/%d/ns/net", pid), OVSRunDir: m.Settings.OVSRunDir, Bridge: m.Settings.Bridge}
		if r.parts, err = live.Read(ctx, node, now); err != nil {
			return nil, err
		}
		after, err := client.Status(ctx)
		if err != nil {
			return nil, err
		}
		r.busy = before.Observed != before.Programmed || after.Observed != after.Programmed || before.Backend != after.Backend ||
			!maps.Equal(before.Writes, after.Writes)
		if !r.busy {
			return r, nil
		}
	}
	return r, nil
}
