package carry

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// patience is the time without a byte after which a connection is lost.
const patience = 20 * time.Second

// busy is clients of the Services with three endpoints that open connections, send and receive all the time.
type busy struct {
	c    *cluster
	done chan struct{}
	all  sync.WaitGroup
	// opened counts connections, moved the answers.
	opened, moved atomic.Int64
}

// The first byte says what the client wants of a server: its bytes back, or bytes without asking.
const (
	wantsEcho byte = 'e'
	wantsPush byte = 'p'
)

// startBusy starts the servers of both families, and their clients in pod a.
func startBusy(c *cluster) *busy {
	c.t.Helper()
	b := &busy{c: c, done: make(chan struct{})}
	for _, f := range [][3]string{{three4, podB4, world4}, {three6, podB6, world6}} {
		for _, at := range [][3]string{{"b", f[1], port(backendPort)}, {"b", f[1], port(otherPort)}, {"world", f[2], port(backendPort)}} {
			b.serve(at[0], net.JoinHostPort(at[1], at[2]))
		}
		to := net.JoinHostPort(f[0], port(servicePort))
		for range 3 {
			b.client("opens connections to "+f[0], func() error { return b.talk(to, 5) })
			b.client("sends all the time to "+f[0], func() error { return b.talk(to, -1) })
			b.client("listens to "+f[0], func() error { return b.hear(to) })
		}
	}
	return b
}

func (b *busy) serve(end, at string) {
	l := b.c.listen(end, at)
	b.c.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				first := make([]byte, 1)
				if _, err := io.ReadFull(conn, first); err != nil {
					return
				}
				if first[0] == wantsEcho {
					_, _ = io.Copy(conn, conn)
					return
				}
				for data := make([]byte, 64); ; time.Sleep(interval) {
					if _, err := conn.Write(data); err != nil {
						return
					}
				}
			}()
		}
	}()
}

// client does something in pod a until the end.
func (b *busy) client(what string, work func() error) {
	b.all.Add(1)
	go func() {
		defer b.all.Done()
		inNamespace(b.c.t, b.c.ns("a"), func() {
			for !b.ended() {
				if err := work(); err != nil {
					b.c.t.Errorf("%s: %v", what, err)
				}
			}
		})
	}()
}

func (b *busy) ended() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

func (b *busy) dial(to string, wants byte) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", to, patience)
	if err == nil {
		_, err = conn.Write([]byte{wants})
		b.opened.Add(1)
	}
	return conn, err
}

// talk sends on a new connection, with an answer each time, so many times, or until the end.
func (b *busy) talk(to string, times int) error {
	conn, err := b.dial(to, wantsEcho)
	if err != nil {
		return err
	}
	defer conn.Close()
	sent, got := bytes.Repeat([]byte{1}, 64), make([]byte, 64)
	for i := 0; i != times && !b.ended(); i++ {
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err := conn.Write(sent); err != nil {
			return fmt.Errorf("from %s, after %d answers: %w", conn.LocalAddr(), i, err)
		}
		if _, err := io.ReadFull(conn, got); err != nil {
			return fmt.Errorf("from %s, after %d answers: %w", conn.LocalAddr(), i, err)
		}
		b.moved.Add(1)
		time.Sleep(interval)
	}
	return nil
}

// hear receives on a new connection and sends nothing, for some hundred pieces.
func (b *busy) hear(to string) error {
	conn, err := b.dial(to, wantsPush)
	if err != nil {
		return err
	}
	defer conn.Close()
	for i, got := 0, make([]byte, 64); i < 300 && !b.ended(); i++ {
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err := io.ReadFull(conn, got); err != nil {
			return fmt.Errorf("from %s, after %d pieces: %w", conn.LocalAddr(), i, err)
		}
		b.moved.Add(1)
	}
	return nil
}

// goOn waits until the clients have opened more connections.
func (b *busy) goOn() {
	b.c.t.Helper()
	want := b.opened.Load() + 100
	for deadline := time.Now().Add(2 * patience); b.opened.Load() < want; time.Sleep(interval) {
		if time.Now().After(deadline) {
			b.c.t.Fatal("no connections open")
		}
	}
}

func (b *busy) stop() {
	close(b.done)
	b.all.Wait()
	b.c.t.Logf("%d connections, %d answers", b.opened.Load(), b.moved.Load())
}

// TestBusyServicesGoOn: connections to Services with three endpoints, one of them by way of the host, open and go on in both directions at
// changes of the backend, and of the way to Services alone.
func TestBusyServicesGoOn(t *testing.T) {
	c := newCluster(t)
	c.node.Services = true
	c.steer(pipeline.Full)
	b := startBusy(c)
	b.goOn()
	for range 4 {
		c.toKernel()
		b.goOn()
		c.toSwitch()
		b.goOn()
		c.leaveServices()
		b.goOn()
		c.node.Services = true
		c.steer(pipeline.Full)
		b.goOn()
	}
	b.stop()
	if groups := c.Ofctl("dump-groups"); !strings.Contains(groups, "dp_hash") {
		t.Errorf("groups %s", groups)
	}
}
