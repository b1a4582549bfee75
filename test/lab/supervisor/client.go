package supervisor

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/felixlike/felixlike/test/lab"
)

// readyLine is what a supervisor process prints when its lab is there.
const readyLine = "ready"

// Ready prints what Start waits for.
func Ready() { fmt.Println(readyLine) }

// Start runs a program that is expected to call Run in the background, in a
// session of its own, and returns when its lab is there.
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
	// It has said on standard error what was wrong.
	return errors.New("the lab did not come up")
}

// Client gives orders to a lab's supervisor.
type Client struct {
	name string
	http *http.Client
}

// NewClient returns a client for the lab of that name below root.
func NewClient(root, name string) *Client {
	socket := socketPath(root, name)
	return &Client{name: name, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}}
}

// State returns the state that the lab was brought to last.
func (c *Client) State(ctx context.Context) (s lab.State, err error) {
	return s, c.do(ctx, http.MethodGet, statePath, nil, &s)
}

// SetState brings the lab to a state and returns when it is programmed.
func (c *Client) SetState(ctx context.Context, s lab.State) error {
	return c.do(ctx, http.MethodPost, statePath, s, nil)
}

// Probe tries probes.
func (c *Client) Probe(ctx context.Context, probes []lab.Probe, timeout time.Duration) (results []lab.Result, err error) {
	return results, c.do(ctx, http.MethodPost, probePath, probeRequest{Probes: probes, Timeout: timeout}, &results)
}

// Status returns the lab's status.
func (c *Client) Status(ctx context.Context) (s lab.Status, err error) {
	return s, c.do(ctx, http.MethodGet, statusPath, nil, &s)
}

func (c *Client) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("lab %s: %w", c.name, err)
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://lab"+path, body)
	if err != nil {
		return fmt.Errorf("lab %s: %w", c.name, err)
	}
	response, err := c.http.Do(request)
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("lab %s does not run (felixctl lab up makes one)", c.name)
	case err != nil:
		return fmt.Errorf("lab %s: %w", c.name, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		var e errorBody
		if err := json.NewDecoder(response.Body).Decode(&e); err != nil {
			return fmt.Errorf("lab %s: %s", c.name, response.Status)
		}
		return fmt.Errorf("lab %s: %s", c.name, e.Error)
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(out); err != nil {
		return fmt.Errorf("lab %s: read answer: %w", c.name, err)
	}
	return nil
}
