package vswitchd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// callTimeout bounds one question. The slowest honest answers take about a
// second: a dump of 100,000 connections, a round of the revalidators.
const callTimeout = 10 * time.Second

// ErrNotRunning says that no ovs-vswitchd listens on the socket.
var ErrNotRunning = errors.New("ovs-vswitchd does not run")

// ErrNoDatapath says that no bridge has a datapath of the client's type, so that
// no connections are tracked there.
var ErrNoDatapath = errors.New("no bridge has the datapath")

// Client is the control socket of a node's ovs-vswitchd. It holds no
// connection: every call finds the daemon that runs now, so that a restarted
// one is no error. It may be used by several goroutines.
type Client struct {
	rundir, datapathType string
}

// New returns a client for the daemon with this run directory. The datapath
// type, "netdev" or "system", says which connections are meant.
func New(rundir, datapathType string) *Client {
	return &Client{rundir: rundir, datapathType: datapathType}
}

// datapath names the datapath: there is one a type.
func (c *Client) datapath() string { return c.datapathType + "@ovs-" + c.datapathType }

// lacking joins ErrNoDatapath to a refusal that is due to a missing datapath, and
// returns other errors as they are.
func (c *Client) lacking(ctx context.Context, err error) error {
	if refused := new(CallError); !errors.As(err, &refused) {
		return err
	}
	if types, asked := c.DatapathTypes(ctx); asked == nil && !slices.Contains(types, c.datapathType) {
		return errors.Join(ErrNoDatapath, err)
	}
	return err
}

// CallError is a command that ovs-vswitchd refused.
type CallError struct{ Method, Reason string }

// Error names the command and the daemon's reason.
func (e *CallError) Error() string { return fmt.Sprintf("ovs-vswitchd: %s: %s", e.Method, e.Reason) }

// Call runs a command and returns its output. A refusal is a *CallError.
func (c *Client) Call(ctx context.Context, method string, args ...string) (string, error) {
	s, err := c.dial(ctx)
	if err != nil {
		return "", err
	}
	out, err := s.call(ctx, method, args...)
	return out, errors.Join(err, s.close())
}

// Version returns the version of Open vSwitch, as in "3.1.0".
func (c *Client) Version(ctx context.Context) (string, error) {
	out, err := c.Call(ctx, "version")
	if err != nil {
		return "", err
	}
	_, version, found := strings.Cut(out, "(Open vSwitch) ")
	if !found {
		return "", fmt.Errorf("ovs-vswitchd: version: %q is no version", out)
	}
	return strings.TrimSpace(version), nil
}

// DatapathTypes returns the types of the datapaths that have bridges.
func (c *Client) DatapathTypes(ctx context.Context) ([]string, error) {
	out, err := c.Call(ctx, "dpctl/dump-dps")
	if err != nil {
		return nil, err
	}
	var types []string
	for name := range strings.FieldsSeq(out) {
		kind, _, found := strings.Cut(name, "@")
		if !found {
			return nil, fmt.Errorf("ovs-vswitchd: dpctl/dump-dps: %q is no datapath", name)
		}
		types = append(types, kind)
	}
	return types, nil
}

// DisableTCPSeqCheck makes the userspace datapath accept every segment of a known connection, with any
// sequence number: the numbers of a connection that was not tracked from its beginning are unknown. A restart
// of the daemon, which forgets all connections, turns the check on again.
func (c *Client) DisableTCPSeqCheck(ctx context.Context) error {
	_, err := c.Call(ctx, "dpctl/ct-disable-tcp-seq-chk", c.datapath())
	return c.lacking(ctx, err)
}

// TCPSeqCheck reports whether the check of sequence numbers is on.
func (c *Client) TCPSeqCheck(ctx context.Context) (bool, error) {
	out, err := c.Call(ctx, "dpctl/ct-get-tcp-seq-chk", c.datapath())
	if err != nil {
		return false, c.lacking(ctx, err)
	}
	switch _, state, _ := strings.Cut(strings.TrimSpace(out), ": "); state {
	case "enabled":
		return true, nil
	case "disabled":
		return false, nil
	}
	return false, fmt.Errorf("ovs-vswitchd: dpctl/ct-get-tcp-seq-chk: unknown answer %q", out)
}

// Connections returns how many connections the userspace datapath tracks. The kernel's datapath
// refuses to answer.
func (c *Client) Connections(ctx context.Context) (uint64, error) {
	return c.number(ctx, "dpctl/ct-get-nconns")
}

// MostConnections returns how many connections the userspace datapath can track. The kernel's
// datapath refuses to answer.
func (c *Client) MostConnections(ctx context.Context) (uint64, error) {
	return c.number(ctx, "dpctl/ct-get-maxconns")
}

func (c *Client) number(ctx context.Context, method string) (uint64, error) {
	out, err := c.Call(ctx, method, c.datapath())
	if err != nil {
		return 0, c.lacking(ctx, err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(out), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("ovs-vswitchd: %s: %w", method, err)
	}
	return n, nil
}

// session is one connection to the daemon, for calls one after the other.
type session struct {
	conn    net.Conn
	encoder *json.Encoder
	decoder *json.Decoder
	id      int
}

func (c *Client) dial(ctx context.Context) (*session, error) {
	pid, err := c.pid()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", filepath.Join(c.rundir, fmt.Sprintf("ovs-vswitchd.%d.ctl", pid)))
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT) {
		err = errors.Join(ErrNotRunning, err)
	}
	if err != nil {
		return nil, fmt.Errorf("ovs-vswitchd: %w", err)
	}
	return &session{conn: conn, encoder: json.NewEncoder(conn), decoder: json.NewDecoder(conn)}, nil
}

// pid returns the daemon's process id as it knows it itself: in a container of
// its own it is another one than on the host, and so is its socket's name.
func (c *Client) pid() (int, error) {
	path := filepath.Join(c.rundir, "ovs-vswitchd.pid")
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		err = errors.Join(ErrNotRunning, err)
	}
	if err != nil {
		return 0, fmt.Errorf("ovs-vswitchd: %w", err)
	}
	pid, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 31)
	if err != nil {
		return 0, fmt.Errorf("ovs-vswitchd: %s: %w", path, err)
	}
	return int(pid), nil
}

func (s *session) close() error { return s.conn.Close() }

func (s *session) call(ctx context.Context, method string, args ...string) (string, error) {
	return s.during(ctx, method, func(context.Context) (string, error) { return s.exchange(method, args) })
}

// during bounds the time of a command.
func (s *session) during(ctx context.Context, method string, do func(context.Context) (string, error)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// Both ways: the end of the context must end a read that waits.
	stop := context.AfterFunc(ctx, func() { _ = s.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	out, err := do(ctx)
	if refused := new(CallError); err != nil && !errors.As(err, &refused) {
		err = fmt.Errorf("ovs-vswitchd: %s: %w", method, errors.Join(context.Cause(ctx), err))
	}
	return out, err
}

func (s *session) exchange(method string, args []string) (string, error) {
	if err := s.ask(method, args); err != nil {
		return "", err
	}
	return s.answer(method)
}

func (s *session) ask(method string, args []string) error {
	s.id++
	if args == nil {
		args = []string{} // not null
	}
	request := struct {
		Method string   `json:"method"`
		Params []string `json:"params"`
		ID     int      `json:"id"`
	}{method, args, s.id}
	return s.encoder.Encode(request)
}

func (s *session) answer(method string) (string, error) {
	var reply struct {
		ID            int
		Result, Error *string
	}
	if err := s.decoder.Decode(&reply); err != nil {
		return "", err
	}
	switch {
	case reply.ID != s.id:
		return "", fmt.Errorf("answer %d to question %d", reply.ID, s.id)
	case reply.Error != nil:
		return "", &CallError{method, strings.ReplaceAll(strings.TrimSpace(*reply.Error), "\n", "; ")}
	case reply.Result == nil:
		return "", errors.New("neither result nor error")
	}
	return *reply.Result, nil
}
