package carry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/test/ovstest"
	"github.com/felixlike/felixlike/test/stopwatch"
)

// carry calls one of the carrier's methods in the node's namespace.
func (c *cluster) carry(f func(context.Context) (Result, error)) Result {
	c.t.Helper()
	var r Result
	inNamespace(c.t, c.NS, func() {
		var err error
		if r, err = f(c.Context()); err != nil {
			c.t.Error(err)
		}
	})
	return r
}

// interval is the time between two packets of a sender.
const interval = 4 * time.Millisecond

// stream is a TCP connection, seen from one end each.
type stream struct {
	name           string
	client, server net.Conn
	// sent and got count the bytes from the sending end to the reading end.
	sent, got atomic.Int64
	stop      chan struct{}
	failed    atomic.Pointer[error]
}

// open opens a connection from an end to an address, which leads to a server.
func (c *cluster) open(name, from, to, server, at string) *stream {
	c.t.Helper()
	s := &stream{name: name, stop: make(chan struct{})}
	l := c.listen(server, at)
	defer func() { _ = l.Close() }()
	inNamespace(c.t, c.ns(from), func() {
		var err error
		if s.client, err = net.DialTimeout("tcp", to, 5*time.Second); err != nil {
			c.t.Errorf("%s: %v", name, err)
		}
	})
	c.accept(s, l)
	return s
}

func (c *cluster) listen(end, at string) net.Listener {
	c.t.Helper()
	var l net.Listener
	inNamespace(c.t, c.ns(end), func() {
		var err error
		if l, err = net.Listen("tcp", at); err != nil {
			c.t.Error(err)
		}
	})
	if l == nil {
		c.t.FailNow()
	}
	return l
}

// accept takes the server's end of a connection, if the client has got one.
func (c *cluster) accept(s *stream, l net.Listener) {
	c.t.Helper()
	if s.client == nil {
		c.t.FailNow()
	}
	var err error
	if s.server, err = l.Accept(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(s.close)
}

// dial opens a connection from a port of pod a to one of b.
func (c *cluster) dial(a, b string, from, to int) *stream {
	c.t.Helper()
	at := net.JoinHostPort(b, port(to))
	l := c.listen("b", at)
	defer func() { _ = l.Close() }()
	s := &stream{name: fmt.Sprintf("from port %d to %s", from, at), stop: make(chan struct{})}
	inNamespace(c.t, c.ns("a"), func() {
		d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(a), Port: from}}
		var err error
		if s.client, err = d.Dial("tcp", at); err != nil {
			c.t.Errorf("%s: %v", s.name, err)
		}
	})
	c.accept(s, l)
	return s
}

// reset has the client end a connection at once, and waits until the server knows.
func (c *cluster) reset(s *stream) {
	c.t.Helper()
	_ = s.client.(*net.TCPConn).SetLinger(0)
	_ = s.client.Close()
	_ = s.server.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := s.server.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		c.t.Fatalf("%s: %v", s.name, err)
	}
}

func (s *stream) close() {
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	_, _ = s.client.Close(), s.server.Close()
}

// push has one end send all the time and the other one count the received bytes.
// The reader sends nothing, so the first packet after a change is the sender's.
func (s *stream) push(from, to net.Conn) {
	go func() {
		b := make([]byte, 512)
		for {
			select {
			case <-s.stop:
				return
			case <-time.After(interval):
			}
			n, err := from.Write(b)
			s.sent.Add(int64(n))
			if err != nil {
				s.fail(err)
				return
			}
		}
	}()
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, err := to.Read(b)
			s.got.Add(int64(n))
			if err != nil {
				s.fail(err)
				return
			}
		}
	}()
}

func (s *stream) fail(err error) {
	if !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.EOF) {
		s.failed.CompareAndSwap(nil, &err)
	}
}

// alive waits until the reader has every byte sent so far, and at least one newer.
func (s *stream) alive(t *testing.T) {
	t.Helper()
	sent := s.sent.Load() + 512
	ovstest.Poll(t, func() error {
		if err := s.failed.Load(); err != nil {
			return fmt.Errorf("%s: %w", s.name, *err)
		}
		if got := s.got.Load(); got < sent {
			return fmt.Errorf("%s hangs: %d of %d bytes came", s.name, got, sent)
		}
		return nil
	})
}

// ask has the client of an idle connection ask, and the server answer.
func (s *stream) ask(t *testing.T) {
	t.Helper()
	for _, way := range [][2]net.Conn{{s.client, s.server}, {s.server, s.client}} {
		if _, err := way[0].Write([]byte("x")); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		_ = way[1].SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := way[1].Read(make([]byte, 1)); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
	}
}

// datagrams is a UDP exchange: after the first request the server sends unasked.
type datagrams struct {
	name string
	got  atomic.Int64
	last atomic.Int64
	lost atomic.Int64
	stop chan struct{}
	ends []net.PacketConn
	// watch runs since the first exchange; held is its lost time at the last call of alive.
	watch *stopwatch.Watch
	held  time.Duration
}

func (c *cluster) datagrams(name, from, to, server, at string) *datagrams {
	c.t.Helper()
	if c.watch == nil {
		c.watch = stopwatch.Start(c.t)
	}
	d := &datagrams{name: name, stop: make(chan struct{}), watch: c.watch, held: c.watch.Lap(c.t).Lost}
	for _, end := range [][2]string{{from, "[::]:0"}, {server, at}} {
		inNamespace(c.t, c.ns(end[0]), func() {
			conn, err := net.ListenPacket("udp", end[1])
			if err != nil {
				c.t.Error(err)
				return
			}
			d.ends = append(d.ends, conn)
		})
	}
	c.t.Cleanup(func() {
		close(d.stop)
		for _, e := range d.ends {
			_ = e.Close()
		}
	})
	dst := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to))
	if _, err := d.ends[0].WriteTo([]byte{0}, dst); err != nil {
		c.t.Fatal(err)
	}
	_ = d.ends[1].SetReadDeadline(time.Now().Add(10 * time.Second))
	_, client, err := d.ends[1].ReadFrom(make([]byte, 9))
	if err != nil {
		c.t.Fatalf("%s: %v", name, err)
	}
	go d.send(client)
	go d.receive()
	return d
}

func (d *datagrams) send(client net.Addr) {
	for i := 1; ; i++ {
		select {
		case <-d.stop:
			return
		case <-time.After(interval):
		}
		if _, err := d.ends[1].WriteTo([]byte(fmt.Sprint(i)), client); err != nil {
			return
		}
	}
}

func (d *datagrams) receive() {
	b := make([]byte, 20)
	for {
		n, _, err := d.ends[0].ReadFrom(b)
		if err != nil {
			return
		}
		var i int64
		if _, err := fmt.Sscan(string(b[:n]), &i); err != nil {
			continue
		}
		d.lost.Add(i - d.last.Swap(i) - 1)
		d.got.Add(1)
	}
}

// alive waits for more datagrams. A flip loses none on an idle machine; on a busy
// one, the buffers of the bridge's ports may overflow while the switch has no processor:
// what is sent in that time may be lost.
func (d *datagrams) alive(t *testing.T) {
	t.Helper()
	before := d.got.Load()
	ovstest.Poll(t, func() error {
		if got := d.got.Load(); got < before+20 {
			return fmt.Errorf("%s: only %d datagrams since", d.name, got-before)
		}
		return nil
	})
	held := d.watch.Lap(t).Lost
	unsteady := held - d.held
	d.held = held
	if lost, got := d.lost.Swap(0), d.got.Load()-before; lost > max(50, got)+int64(unsteady/interval) {
		t.Errorf("%s: %d datagrams lost, %d came, after at most %s without a processor", d.name, lost, got, unsteady)
	}
}

// echo is an ICMP echo exchange of a pod, over a socket without privileges.
type echo struct {
	name string
	conn net.PacketConn
	to   net.Addr
	kind byte
	n    byte
}

func (c *cluster) ping(from, to string) *echo {
	c.t.Helper()
	e := &echo{name: "ping " + to, kind: 8}
	a := netip.MustParseAddr(to)
	e.to = &net.UDPAddr{IP: a.AsSlice()}
	network := "udp4"
	if a.Is6() {
		e.kind, network = 128, "udp6"
	}
	c.in(c.ns(from), "sysctl", "-qw", "net.ipv4.ping_group_range=0 1000")
	inNamespace(c.t, c.ns(from), func() {
		fd, err := pingSocket(a.Is6())
		if err != nil {
			c.t.Error(err)
			return
		}
		f := os.NewFile(uintptr(fd), network)
		defer func() { _ = f.Close() }()
		if e.conn, err = net.FilePacketConn(f); err != nil {
			c.t.Error(err)
		}
	})
	if e.conn == nil {
		c.t.FailNow()
	}
	c.t.Cleanup(func() { _ = e.conn.Close() })
	e.once(c.t)
	return e
}

// once sends one request, of the same id every time, and waits for its answer.
func (e *echo) once(t *testing.T) {
	t.Helper()
	e.n++
	if _, err := e.conn.WriteTo([]byte{e.kind, 0, 0, 0, 0, 0, 0, e.n}, e.to); err != nil {
		t.Fatalf("%s: %v", e.name, err)
	}
	_ = e.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, _, err := e.conn.ReadFrom(make([]byte, 100)); err != nil {
		t.Fatalf("%s: %v", e.name, err)
	}
}
