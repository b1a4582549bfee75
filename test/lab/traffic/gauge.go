package traffic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/namespace"
)

// Times of a Gauge.
const (
	pingEvery = 5 * time.Millisecond
	// openEvery and openTime are of new connections: one that does not open in openTime is
	// given up, so that the kernel's waits before it sends a SYN again do not count.
	openEvery = 20 * time.Millisecond
	openTime  = 250 * time.Millisecond
	// blockEvery is the pause of a stream between two blocks.
	blockEvery = 10 * time.Millisecond
	// deniedEvery is the pause between two denied attempts of one kind.
	deniedEvery = 25 * time.Millisecond
	// insistEvery and insistFor are of a denied connection that has opened.
	insistEvery = 50 * time.Millisecond
	insistFor   = 5 * time.Second
)

// Gauge is traffic over a long time. Other than Traffic, it goes on after a fault, and notes
// when packets got through. Packets that policy denies are counted by Arrivals.
type Gauge struct {
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// NewGauge returns one without traffic. Stop ends it; so does the end of ctx.
func NewGauge(ctx context.Context) *Gauge {
	g := &Gauge{}
	g.ctx, g.cancel = context.WithCancel(ctx)
	return g
}

// Stop ends the traffic.
func (g *Gauge) Stop() {
	g.cancel()
	g.done.Wait()
}

// repeat repeats work with a pause until the end.
func (g *Gauge) repeat(every time.Duration, work func()) {
	g.done.Go(func() {
		for g.ctx.Err() == nil {
			work()
			pause(g.ctx, every)
		}
	})
}

// socket opens a UDP socket in a namespace. It is closed at the end.
func (g *Gauge) socket(r Route, port int) (net.Conn, error) {
	var conn net.Conn
	err := r.From.Do(func() (err error) {
		conn, err = (&net.Dialer{LocalAddr: &net.UDPAddr{Port: port}}).Dial("udp", r.To.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("UDP socket %s: %w", r.Name, err)
	}
	return conn, nil
}

// Pings sends datagrams from one socket to an echo server, and notes the answers.
func (g *Gauge) Pings(r Route) (*Meter, error) {
	conn, err := g.socket(r, 0)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(g.ctx, func() { conn.Close() })
	m := &Meter{}
	number := uint64(0)
	g.repeat(pingEvery, func() {
		number++
		m.attempt()
		// What cannot be sent is not answered, which shows.
		_, _ = conn.Write(binary.BigEndian.AppendUint64(nil, number))
	})
	g.done.Go(func() {
		buffer := make([]byte, 64)
		for g.ctx.Err() == nil {
			if _, err := conn.Read(buffer); err == nil {
				m.through()
			} else {
				pause(g.ctx, pingEvery)
			}
		}
	})
	return m, nil
}

// Openings opens one TCP connection after the other, has a byte echoed on each, and notes
// those that succeed.
func (g *Gauge) Openings(r Route) *Meter {
	m := &Meter{}
	g.repeat(openEvery, func() {
		m.attempt()
		conn, err := Connect(r.From, netip.Addr{}, r.To, openTime)
		if err != nil {
			return
		}
		defer conn.Close()
		if Echo(conn, openTime) == nil {
			m.through()
		}
	})
	return m
}

// Stream is one TCP connection that echoes blocks all the time.
type Stream struct {
	Meter
	mu  sync.Mutex
	err error
}

// Err returns why the stream has ended, or nil.
func (s *Stream) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Stream opens a connection that echoes blocks until its first fault. Patience bounds the wait
// for a block.
func (g *Gauge) Stream(r Route, patience time.Duration) (*Stream, error) {
	conn, err := Connect(r.From, netip.Addr{}, r.To, patience)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", r.Name, err)
	}
	context.AfterFunc(g.ctx, func() { conn.Close() })
	s := &Stream{}
	g.done.Go(func() {
		defer conn.Close()
		for g.ctx.Err() == nil {
			s.attempt()
			if err := block(conn, byte(s.Attempts()), patience); err != nil {
				s.mu.Lock()
				s.err = fmt.Errorf("stream %s: %w", r.Name, err)
				s.mu.Unlock()
				return
			}
			s.through()
			pause(g.ctx, blockEvery)
		}
	})
	return s, nil
}

// block has a block echoed.
func block(conn *os.File, first byte, patience time.Duration) error {
	out, in := make([]byte, 1000), make([]byte, 1000)
	for i := range out {
		out[i] = first + byte(i)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := conn.Write(out); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, in); err != nil {
		return err
	}
	if string(in) != string(out) {
		return errors.New("a block came back changed")
	}
	return nil
}

// Knocks tries to open TCP connections. It keeps sending on one that opens.
func (g *Gauge) Knocks(r Route) *Meter {
	m := &Meter{}
	g.repeat(deniedEvery, func() {
		m.attempt()
		conn, err := Connect(r.From, netip.Addr{}, r.To, knockTime)
		if err != nil {
			return
		}
		g.done.Go(func() { g.insist(conn) })
	})
	return m
}

// insist sends bytes on a connection for a while.
func (g *Gauge) insist(conn *os.File) {
	defer conn.Close()
	for end := time.Now().Add(insistFor); g.ctx.Err() == nil && time.Now().Before(end); {
		if err := conn.SetDeadline(time.Now().Add(insistEvery)); err != nil {
			return
		}
		_, _ = conn.Write([]byte{'!'}) // a connection that has ended sends nothing
		pause(g.ctx, insistEvery)
	}
}

// Datagrams sends datagrams from one socket.
func (g *Gauge) Datagrams(r Route) (*Meter, error) {
	conn, err := g.socket(r, 0)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(g.ctx, func() { conn.Close() })
	m := &Meter{}
	g.repeat(deniedEvery, func() {
		m.attempt()
		_, _ = conn.Write([]byte{'!'})
	})
	return m, nil
}

// NewSockets sends one datagram from each of many sockets.
func (g *Gauge) NewSockets(r Route) *Meter {
	m := &Meter{}
	g.repeat(deniedEvery, func() {
		m.attempt()
		conn, err := g.socket(r, 0)
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Write([]byte{'!'})
	})
	return m
}

// Once sends one datagram, and one TCP segment that opens a connection, both from a port.
func (g *Gauge) Once(r Route, port int) error {
	conn, err := g.socket(r, port)
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte{'!'})
	if err := conn.Close(); err != nil {
		return err
	}
	if err != nil {
		return fmt.Errorf("UDP socket %s: %w", r.Name, err)
	}
	source := netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(port))
	if r.To.Addr().Is6() {
		source = netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(port))
	}
	if tcp, err := ConnectFrom(r.From, source, r.To, knockTime); err == nil {
		return tcp.Close()
	}
	return nil
}

// forgetAfter bounds the time for which a server of Forgetful sends again what a client has
// not acknowledged, and waits for a client that sends nothing.
const forgetAfter = 4 * time.Second

// Forgetful echoes on TCP connections, and resets one soon if its client does not acknowledge
// or sends nothing. So a denied connection that got in is gone while conntrack still knows it:
// conntrack forgets a connection 10 s after a reset of its client, and would take a later packet
// of the server, such as a keep-alive, for the first one of a connection of the server
// (nf_conntrack_tcp_timeout_close, Documentation/networking/nf_conntrack-sysctl.rst).
func (g *Gauge) Forgetful(in *namespace.Namespace, at netip.AddrPort) error {
	var listener net.Listener
	control := func(_, _ string, conn syscall.RawConn) (err error) {
		both := conn.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(forgetAfter.Milliseconds()))
		})
		return errors.Join(err, both)
	}
	err := in.Do(func() (err error) {
		listener, err = (&net.ListenConfig{Control: control, KeepAlive: -1}).Listen(g.ctx, "tcp", at.String())
		return err
	})
	if err != nil {
		return fmt.Errorf("server at %s: %w", at, err)
	}
	context.AfterFunc(g.ctx, func() { listener.Close() })
	g.done.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(g.ctx, func() { conn.Close() })
			g.done.Go(func() {
				defer stop()
				defer conn.Close()
				echoUntilSilent(conn.(*net.TCPConn))
			})
		}
	})
	return nil
}

// echoUntilSilent echoes until the client's reset, or until nothing came for forgetAfter. Then
// closing resets.
func echoUntilSilent(conn *net.TCPConn) {
	if conn.SetLinger(0) != nil {
		return
	}
	buf := make([]byte, 4096)
	for conn.SetReadDeadline(time.Now().Add(forgetAfter)) == nil {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		if _, err := conn.Write(buf[:n]); err != nil {
			return
		}
	}
}

// SlowServer answers each datagram after a delay, until the end.
func (g *Gauge) SlowServer(in *namespace.Namespace, at netip.AddrPort, delay time.Duration) error {
	var conn *net.UDPConn
	err := in.Do(func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	})
	if err != nil {
		return fmt.Errorf("slow server at %s: %w", at, err)
	}
	context.AfterFunc(g.ctx, func() { conn.Close() })
	g.done.Go(func() {
		buffer := make([]byte, 64)
		for g.ctx.Err() == nil {
			_, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				pause(g.ctx, pingEvery)
				continue
			}
			// The answer is a packet of its own: a client that has gone does not matter.
			time.AfterFunc(delay, func() { _, _ = conn.WriteToUDPAddrPort([]byte{'.'}, from) })
		}
	})
	return nil
}
