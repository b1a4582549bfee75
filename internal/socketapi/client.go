package socketapi

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
	"os"
	"strings"
	"syscall"
	"time"
)

const (
	// maxAnswer bounds what a client reads: far above the status of a full node.
	maxAnswer = 64 << 20
	// timeoutParameter has the time that the caller waits.
	timeoutParameter = "timeout"
)

// ErrNotHTTP says that the other end of the socket does not speak HTTP/1.
var ErrNotHTTP = errors.New("the other end of the socket speaks another protocol")

// NotRunning reports whether a call failed because nobody listens.
func NotRunning(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// Client calls the server of one socket. It keeps no connection between calls and may be
// used from several goroutines.
type Client struct{ http *http.Client }

// NewClient returns a client of the server behind the socket. It does not connect.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "unix", path)
		if err != nil {
			return nil, err
		}
		return &httpConn{Conn: conn}, nil
	}
	return &Client{http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Call sends a request and decodes the answer into out, if that is not nil. A refusal
// is an *Error; if the time is over, it is context.DeadlineExceeded too.
func (c *Client) Call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	if deadline, ok := ctx.Deadline(); ok {
		if query == nil {
			query = url.Values{}
		}
		query.Set(timeoutParameter, serverTimeout(time.Until(deadline)).String())
	}
	status, data, err := c.Exchange(ctx, method, path, query, in)
	switch {
	case err != nil:
		return err
	case status != http.StatusOK:
		return ErrorOf(status, data)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	return nil
}

// Exchange sends a request and returns the status and the body of the answer.
func (c *Client) Exchange(ctx context.Context, method, path string, query url.Values, in any) (int, []byte, error) {
	response, err := c.send(ctx, method, path, query, in)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return 0, nil, fmt.Errorf("read answer: %w", err)
	}
	return response.StatusCode, data, nil
}

// Open returns the answer of a stream, which the caller closes.
func (c *Client) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	response, err := c.send(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		return nil, errors.Join(ErrorOf(response.StatusCode, data), err)
	}
	return response.Body, nil
}

func (c *Client) send(ctx context.Context, method, path string, query url.Values, in any) (*http.Response, error) {
	var content bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&content).Encode(in); err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
	}
	target := url.URL{Scheme: "http", Host: "agent", Path: path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, method, target.String(), &content)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if errors.Is(err, ErrNotHTTP) {
		return nil, ErrNotHTTP
	}
	// The URL in net/http's errors is made up.
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		return nil, wrapped.Err
	}
	return response, err
}

// serverTimeout is the server's part of the caller's time: a little less, so that its
// answer, which names the missing condition, arrives.
func serverTimeout(left time.Duration) time.Duration {
	margin := min(left/10, 100*time.Millisecond)
	return max(left-margin, time.Millisecond)
}

// httpConn fails with ErrNotHTTP if the first bytes that come are not those of an
// answer. net/http has no error for it that callers can distinguish from others, and logs
// bytes that come before the request is sent.
type httpConn struct {
	net.Conn
	checked bool
}

// Read reads.
func (c *httpConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.checked || n == 0 {
		return n, err
	}
	c.checked = true
	const begin = "HTTP/1."
	if first := string(b[:min(n, len(begin))]); !strings.HasPrefix(begin, first) {
		return 0, ErrNotHTTP
	}
	return n, err
}
