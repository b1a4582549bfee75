package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/felixlike/felixlike/lab"
	"github.com/felixlike/felixlike/lab/namespace"
	"github.com/felixlike/felixlike/model"
)

// trafficKind is a kind of traffic between two pods.
type trafficKind string

const (
	// connections opens TCP connections, one after the other.
	connections trafficKind = "connections"
	// roundTrips sends a byte to and fro on one TCP connection.
	roundTrips trafficKind = "round-trips"
	// stream sends as much as it can on one TCP connection.
	stream trafficKind = "stream"
)

func trafficKinds() []trafficKind { return []trafficKind{connections, roundTrips, stream} }

// wireTimeout bounds what must come at once.
const wireTimeout = 5 * time.Second

// chunk is how much a stream is written and read by.
const chunk = 64 << 10

// sample is one measurement of a kind of traffic.
type sample struct {
	// latencies are of single connections or round trips, seconds what it took
	// in all, bytes what a stream has carried.
	latencies          []time.Duration
	seconds, switchCPU float64
	bytes              int64
}

// wire is the way from the client to the server.
type wire struct {
	client *namespace.Namespace
	server net.Listener
	target netip.AddrPort
}

func newWire(client, server *lab.Pod) (*wire, error) {
	w := &wire{client: client.Namespace(), target: netip.AddrPortFrom(server.Address(model.IPv4), packetsPort)}
	err := server.Namespace().Do(func() (err error) {
		w.server, err = net.Listen("tcp", w.target.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	return w, nil
}

func (w *wire) close() { w.server.Close() }

// dial opens a connection and returns the time that it took.
func (w *wire) dial(ctx context.Context) (conn *net.TCPConn, took time.Duration, err error) {
	d := net.Dialer{Timeout: wireTimeout}
	err = w.client.Do(func() error {
		begin := time.Now()
		c, err := d.DialContext(ctx, "tcp", w.target.String())
		took = time.Since(begin)
		if err == nil {
			conn = c.(*net.TCPConn)
		}
		return err
	})
	return conn, took, err
}

// measure makes one kind of traffic for a while.
func (w *wire) measure(ctx context.Context, kind trafficKind, d time.Duration) (sample, error) {
	switch kind {
	case connections:
		return w.connections(ctx, d)
	case roundTrips:
		return w.roundTrips(ctx, d)
	}
	return w.stream(ctx, d)
}

func (w *wire) connections(ctx context.Context, d time.Duration) (s sample, err error) {
	begin := time.Now()
	for time.Since(begin) < d {
		conn, took, err := w.dial(ctx)
		if err != nil {
			return s, err
		}
		s.latencies = append(s.latencies, took)
		peer, err := w.server.Accept()
		if err != nil {
			return s, errors.Join(err, conn.Close())
		}
		// A reset leaves no port in TIME_WAIT.
		if err := errors.Join(conn.SetLinger(0), conn.Close(), peer.Close()); err != nil {
			return s, err
		}
	}
	s.seconds = time.Since(begin).Seconds()
	return s, nil
}

// pair opens a connection and returns both ends.
func (w *wire) pair(ctx context.Context) (near, far net.Conn, err error) {
	conn, _, err := w.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	far, err = w.server.Accept()
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, far, nil
}

func (w *wire) roundTrips(ctx context.Context, d time.Duration) (s sample, err error) {
	near, far, err := w.pair(ctx)
	if err != nil {
		return s, err
	}
	defer near.Close()
	go func() {
		defer far.Close()
		_, _ = io.Copy(far, far) // ends with the connection
	}()
	begin, b := time.Now(), make([]byte, 1)
	for time.Since(begin) < d {
		sent := time.Now()
		if err := near.SetDeadline(sent.Add(wireTimeout)); err != nil {
			return s, err
		}
		if _, err := near.Write(b); err != nil {
			return s, err
		}
		if _, err := near.Read(b); err != nil {
			return s, err
		}
		s.latencies = append(s.latencies, time.Since(sent))
	}
	s.seconds = time.Since(begin).Seconds()
	return s, nil
}

// stream counts what arrives.
func (w *wire) stream(ctx context.Context, d time.Duration) (s sample, err error) {
	near, far, err := w.pair(ctx)
	if err != nil {
		return s, err
	}
	defer far.Close()
	go func() {
		defer near.Close()
		for b := make([]byte, chunk); ; {
			if _, err := near.Write(b); err != nil {
				return // the other end has closed
			}
		}
	}()
	begin, b := time.Now(), make([]byte, chunk)
	if err := far.SetDeadline(begin.Add(d + wireTimeout)); err != nil {
		return s, err
	}
	for time.Since(begin) < d {
		n, err := far.Read(b)
		if err != nil {
			return s, err
		}
		s.bytes += int64(n)
	}
	s.seconds = time.Since(begin).Seconds()
	return s, nil
}

// processCPU returns the CPU time that a process has used (proc(5), fields 14
// and 15 of stat, in hundredths of a second).
func processCPU(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name in brackets may hold anything.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, text)
	}
	var ticks uint64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}
