package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/lab"
	"github.com/felixlike/felixlike/lab/namespace"
	"github.com/felixlike/felixlike/model"
)

// pushPort is where the servers listen that push.
const pushPort = 9000

// startQuiet opens connections that say little, for each pair of pods over both
// families: idle ones, which say nothing until the traffic stops and then echo a
// block, and some on which only the server speaks. A connection tracking that has
// lost them hears of the first from nobody, and of the second from the wrong end.
func (tr *traffic) startQuiet(t *testing.T, l *lab.Lab, pairs [][2]string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stop := tr.cancel
	tr.cancel = func() { cancel(); stop() }
	for _, f := range model.Families() {
		served := map[string]bool{}
		for _, p := range pairs {
			from, to := route(l, p, f)
			idle, err := connect(from, to, synRetries)
			if err != nil {
				t.Fatalf("idle connection %s -> %s: %v", p[0], p[1], err)
			}
			tr.quiet(fmt.Sprintf("idle connection %s -> %s IPv%s", p[0], p[1], f), func() error { return waken(ctx, idle) })
			to = netip.AddrPortFrom(to.Addr(), pushPort)
			if !served[p[1]] {
				served[p[1]] = true
				serve(ctx, t, l.Pod(pod(p[1])).Namespace(), to)
			}
			tr.quiet(fmt.Sprintf("pushing server %s -> %s IPv%s", p[1], p[0], f), func() error { return tr.listen(ctx, from, to) })
		}
	}
}

// quiet does some work once; its error is a fault even at the end.
func (tr *traffic) quiet(what string, work func() error) {
	tr.done.Add(1)
	go func() {
		defer tr.done.Done()
		if err := work(); err != nil {
			tr.fault(what, err)
		}
	}()
}

// waken waits until ctx ends and has a block echoed then.
func waken(ctx context.Context, conn *os.File) error {
	defer conn.Close()
	<-ctx.Done()
	block, back := []byte("still here"), make([]byte, 10)
	if err := conn.SetDeadline(time.Now().Add(synRetries)); err != nil {
		return err
	}
	if _, err := conn.Write(block); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, back); err != nil {
		return err
	}
	if string(back) != string(block) {
		return errors.New("the block came back changed")
	}
	return nil
}

// serve pushes numbers to everyone who connects, until ctx ends.
func serve(ctx context.Context, t *testing.T, in *namespace.Namespace, at netip.AddrPort) {
	t.Helper()
	var listener net.Listener
	err := in.Do(func() (err error) {
		listener, err = net.Listen("tcp", at.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go push(ctx, conn)
		}
	}()
}

func push(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	var number [8]byte
	for n := uint64(0); ctx.Err() == nil; n++ {
		binary.BigEndian.PutUint64(number[:], n)
		if _, err := conn.Write(number[:]); err != nil {
			return
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// listen takes what a server pushes, one number after the other.
func (tr *traffic) listen(ctx context.Context, from *namespace.Namespace, to netip.AddrPort) error {
	conn, err := connect(from, to, synRetries)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer conn.Close()
	var number [8]byte
	for n := uint64(0); ; n++ {
		if err := conn.SetDeadline(time.Now().Add(2 * synRetries)); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, number[:]); err != nil {
			if ctx.Err() != nil && (errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET)) {
				return nil
			}
			return fmt.Errorf("after %d numbers: %w", n, err)
		}
		if got := binary.BigEndian.Uint64(number[:]); got != n {
			return fmt.Errorf("got %d in the place of %d", got, n)
		}
		tr.note(func() { tr.pushed++ })
	}
}
