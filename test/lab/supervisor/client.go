package supervisor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/test/lab"
)

// readyLine is the line that a supervisor process prints when its lab is up.
const readyLine = "ready"

// Ready prints the line that Start waits for.
func Ready() { fmt.Println(readyLine) }

// Start runs a program that is expected to call Run in the background, in a
// new session, and returns when its lab is up.
func Start(program string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("supervisor: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("supervisor: %w", err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil && strings.TrimSpace(line) == readyLine {
		return cmd.Process.Release()
	}
	if err := cmd.Wait(); err == nil {
		return errors.New("the lab's supervisor ended before its lab was there")
	}
	// The program has printed the reason on standard error.
	return errors.New("the lab did not come up")
}

// Client gives orders to a lab's supervisor.
type Client struct{ *labs.Client }

// NewClient returns a client for the lab of that name below root.
func NewClient(root, name string) *Client { return &Client{labs.NewClient(root, name)} }

// State returns the state that the lab was brought to last.
func (c *Client) State(ctx context.Context) (s lab.State, err error) {
	return s, c.Do(ctx, http.MethodGet, statePath, nil, &s)
}

// SetState brings the lab to a state and returns when it is programmed.
func (c *Client) SetState(ctx context.Context, s lab.State) error {
	return c.Do(ctx, http.MethodPost, statePath, s, nil)
}

// Restart restarts a node's agent and returns when it has programmed everything.
func (c *Client) Restart(ctx context.Context, node string) error {
	return c.Do(ctx, http.MethodPost, restartPath, restartRequest{Node: node}, nil)
}

// Probe tries probes.
func (c *Client) Probe(ctx context.Context, probes []lab.Probe, timeout time.Duration) (results []lab.Result, err error) {
	return results, c.Do(ctx, http.MethodPost, probePath, probeRequest{Probes: probes, Timeout: timeout}, &results)
}
