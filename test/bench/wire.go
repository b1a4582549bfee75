package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/test/measure"
)

// chunk is the size of a stream's writes and reads.
const chunk = 64 << 10

// wire is the path from the client to the server, over a switch with a known
// process.
type wire struct {
	client *namespace.Namespace
	server net.Listener
	target netip.AddrPort
	// vswitchd is the process that switches.
	vswitchd int
}

// newWire has the server listen. The address is the server's.
func newWire(client, server *namespace.Namespace, address netip.Addr, vswitchd int) (*wire, error) {
	w := &wire{client: client, target: netip.AddrPortFrom(address, packetsPort), vswitchd: vswitchd}
	err := server.Do(func() (err error) {
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
	return measure.Dial(ctx, w.client, w.target)
}

// measure makes one kind of traffic for a while.
func (w *wire) measure(ctx context.Context, kind TrafficKind, d time.Duration) (sample, error) {
	switch kind {
	case Connections:
		return w.connections(ctx, d)
	case ParallelConnections:
		return w.parallelConnections(ctx, d)
	case RoundTrips:
		return w.roundTrips(ctx, d)
	}
	return w.stream(ctx, d)
}

func (w *wire) connections(ctx context.Context, d time.Duration) (s sample, err error) {
	begin := time.Now()
	for time.Since(begin) < d {
		took, err := w.connection(ctx)
		if err != nil {
			return s, err
		}
		s.latencies = append(s.latencies, took)
	}
	s.took = time.Since(begin)
	return s, nil
}

// parallelConnections has ParallelClients clients open connections, each one after the
// other. The server accepts and ends them.
func (w *wire) parallelConnections(ctx context.Context, d time.Duration) (s sample, err error) {
	listener, ok := w.server.(*net.TCPListener)
	if !ok {
		return s, fmt.Errorf("server: %T takes no deadline", w.server)
	}
	var clients errgroup.Group
	latencies := make([][]time.Duration, ParallelClients)
	begin := time.Now()
	for i := range latencies {
		clients.Go(func() error {
			for time.Since(begin) < d {
				conn, took, err := w.dial(ctx)
				if err != nil {
					return err
				}
				// A reset leaves no port in TIME_WAIT.
				if err := errors.Join(conn.SetLinger(0), conn.Close()); err != nil {
					return err
				}
				latencies[i] = append(latencies[i], took)
			}
			return nil
		})
	}
	ended := make(chan error, 1)
	go func() {
		err := clients.Wait()
		s.took = time.Since(begin)
		ended <- err
		_ = listener.SetDeadline(time.Unix(1, 0))
	}()
	for err == nil {
		var conn net.Conn
		if conn, err = listener.Accept(); err == nil {
			_ = conn.Close() // the client has reset it, or will
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	err = errors.Join(<-ended, err, listener.SetDeadline(time.Time{}))
	s.latencies = slices.Concat(latencies...)
	return s, err
}

// accept returns the server's end of a connection. It closes other connections that still
// wait: parallelConnections left them, and their clients have reset them.
func (w *wire) accept(conn net.Conn) (net.Conn, error) {
	for {
		peer, err := w.server.Accept()
		if err != nil || peer.RemoteAddr().String() == conn.LocalAddr().String() {
			return peer, err
		}
		_ = peer.Close()
	}
}

// connection opens a connection, returns the time that it took, and ends it.
func (w *wire) connection(ctx context.Context) (time.Duration, error) {
	conn, took, err := w.dial(ctx)
	if err != nil {
		return 0, err
	}
	peer, err := w.accept(conn)
	if err != nil {
		return 0, errors.Join(err, conn.Close())
	}
	// A reset leaves no port in TIME_WAIT.
	return took, errors.Join(conn.SetLinger(0), conn.Close(), peer.Close())
}

// pair opens a connection and returns both ends.
func (w *wire) pair(ctx context.Context) (near, far net.Conn, err error) {
	conn, _, err := w.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	far, err = w.accept(conn)
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
		if err := near.SetDeadline(sent.Add(measure.AnswerTimeout)); err != nil {
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
	s.took = time.Since(begin)
	return s, nil
}

// stream counts the received bytes.
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
	if err := far.SetDeadline(begin.Add(d + measure.AnswerTimeout)); err != nil {
		return s, err
	}
	for time.Since(begin) < d {
		n, err := far.Read(b)
		if err != nil {
			return s, err
		}
		s.bytes += int64(n)
	}
	s.took = time.Since(begin)
	return s, nil
}
