package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
)

// maxAnswer bounds an answer that a client reads: far above the status of a full node.
const maxAnswer = 64 << 20

// Client asks one agent. It keeps no connection between calls and may be used
// from several goroutines.
type Client struct {
	path string
	http *http.Client
}

// NewClient returns a client of the agent behind the socket. It does not
// connect.
func NewClient(socketPath string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "unix", socketPath)
	}
	return &Client{
		path: socketPath,
		http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}},
	}
}

// Status returns the agent's status.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var status Status
	err := c.call(ctx, http.MethodGet, statusPath, nil, nil, &status)
	return status, err
}

// Sync makes the agent look at its datastore again, waits until all that is
// there, and every given pod, is programmed, and returns the revision that is.
func (c *Client) Sync(ctx context.Context, pods ...model.PodID) (uint64, error) {
	var request syncRequest
	for _, pod := range pods {
		request.Pods = append(request.Pods, pod.String())
	}
	var reply revisionReply
	err := c.call(ctx, http.MethodPost, syncPath, nil, request, &reply)
	return reply.Revision, err
}

// WaitProgrammed waits until the revision or a later one is programmed and
// returns the one that is.
func (c *Client) WaitProgrammed(ctx context.Context, revision uint64) (uint64, error) {
	var reply revisionReply
	query := url.Values{"revision": {strconv.FormatUint(revision, 10)}}
	err := c.call(ctx, http.MethodGet, programmedPath, query, nil, &reply)
	return reply.Revision, err
}

// SetBackend moves policy to the named backend and waits until nothing of the
// old one is left.
func (c *Client) SetBackend(ctx context.Context, name string) error {
	var reply backendRequest
	return c.call(ctx, http.MethodPost, backendPath, nil, backendRequest{Backend: name}, &reply)
}

// Probe asks health.LivePath or health.ReadyPath. It returns whether all is well, and the
// answer for people. It fails if the agent does not answer.
func (c *Client) Probe(ctx context.Context, path string) (well bool, answer string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, nil)
	if err != nil {
		return false, "", err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return false, "", fmt.Errorf("agent at %s: %s: %w", c.path, path, plainError(err))
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch {
	case err != nil:
		return false, "", fmt.Errorf("agent at %s: %s: read answer: %w", c.path, path, err)
	case response.StatusCode != http.StatusOK && response.StatusCode != http.StatusServiceUnavailable:
		return false, "", fmt.Errorf("agent at %s: %s: %w", c.path, path, answeredError(response.StatusCode, text))
	}
	return response.StatusCode == http.StatusOK, strings.TrimSpace(string(text)), nil
}

// NotRunning reports whether a call failed because no agent listens.
func NotRunning(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED)
}

func (c *Client) call(ctx context.Context, method, path string, query url.Values, body, into any) error {
	if err := c.exchange(ctx, method, path, query, body, into); err != nil {
		return fmt.Errorf("agent at %s: %s: %w", c.path, path, err)
	}
	return nil
}

func (c *Client) exchange(ctx context.Context, method, path string, query url.Values, body, into any) error {
	if query == nil {
		query = url.Values{}
	}
	if deadline, ok := ctx.Deadline(); ok {
		query.Set("timeout", serverTimeout(time.Until(deadline)).String())
	}
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
	}
	target := url.URL{Scheme: "http", Host: "agent", Path: path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, method, target.String(), &content)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return plainError(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return answeredError(response.StatusCode, data)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	return nil
}

// serverTimeout returns the server's deadline: a little less than the caller's, so that the server's answer,
// which lists the missing parts, arrives.
func serverTimeout(left time.Duration) time.Duration {
	margin := min(left/10, 100*time.Millisecond)
	return max(left-margin, time.Millisecond)
}

// plainError drops the made-up URL of net/http's errors.
func plainError(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// answeredError returns the agent's refusal. A timeout is context.DeadlineExceeded, as if it had happened
// here.
func answeredError(code int, body []byte) error {
	var reply errorReply
	if err := json.Unmarshal(body, &reply); err != nil || reply.Error == "" {
		return fmt.Errorf("unexpected answer %d %s", code, http.StatusText(code))
	}
	if code == http.StatusGatewayTimeout {
		return fmt.Errorf("%s (%w)", reply.Error, context.DeadlineExceeded)
	}
	return errors.New(reply.Error)
}
