package control

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/felixlike/felixlike/internal/printable"
	"github.com/felixlike/felixlike/internal/socketapi"
	"github.com/felixlike/felixlike/model"
)

// Client asks one agent. It keeps no connection between calls and may be used
// from several goroutines.
type Client struct {
	path string
	api  *socketapi.Client
}

// NewClient returns a client of the agent behind the socket. It does not
// connect.
func NewClient(socketPath string) *Client {
	return &Client{path: socketPath, api: socketapi.NewClient(socketPath)}
}

// Status returns the agent's status.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var status Status
	err := c.call(ctx, http.MethodGet, statusPath, nil, nil, &status)
	printable.All(&status) // it has names and reasons of others
	return status, err
}

// Sync makes the agent read its datastore again. It waits until everything in it and every
// given pod is programmed, and returns the programmed revision.
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
	status, text, err := c.api.Exchange(ctx, http.MethodGet, path, nil, nil)
	if err == nil && status != http.StatusOK && status != http.StatusServiceUnavailable {
		err = socketapi.ErrorOf(status, text)
	}
	if err != nil {
		return false, "", fmt.Errorf("agent at %s: %s: %w", c.path, path, err)
	}
	return status == http.StatusOK, strings.TrimSpace(string(text)), nil
}

// NotRunning reports whether a call failed because no agent listens.
func NotRunning(err error) bool { return socketapi.NotRunning(err) }

func (c *Client) call(ctx context.Context, method, path string, query url.Values, body, into any) error {
	if err := c.api.Call(ctx, method, path, query, body, into); err != nil {
		return fmt.Errorf("agent at %s: %s: %w", c.path, path, err)
	}
	return nil
}
