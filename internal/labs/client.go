package labs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
)

// StatusPath is the path of a supervisor's Status.
const StatusPath = "/v1/status"

// ErrorBody is a supervisor's answer to a failed request.
type ErrorBody struct {
	Error string `json:"error"`
}

// Client asks a lab's supervisor.
type Client struct {
	name string
	http *http.Client
}

// NewClient returns a client for the lab of that name below root.
func NewClient(root, name string) *Client {
	socket := Socket(root, name)
	return &Client{name: name, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}}
}

// Status returns the lab's status.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.Do(ctx, http.MethodGet, StatusPath, nil, &s)
}

// Do sends a request with a body, if there is one, and reads the answer into out, if
// that is not nil.
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
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
		var e ErrorBody
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
