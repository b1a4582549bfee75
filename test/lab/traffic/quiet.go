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
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/namespace"
)

// Idle opens a connection that is silent until the traffic stops, and then
// echoes a block. No packet restores its conntrack entry meanwhile.
func (tr *Traffic) Idle(r Route) error {
	conn, err := Connect(r.From, netip.Addr{}, r.To, tr.patience)
	if err != nil {
		return fmt.Errorf("idle connection %s: %w", r.Name, err)
	}
	tr.once("idle connection "+r.Name, func() error { return tr.waken(conn) })
	return nil
}

// waken waits until the end and has a block echoed then.
func (tr *Traffic) waken(conn *os.File) error {
	defer conn.Close()
	<-tr.ctx.Done()
	block, back := []byte("still here"), make([]byte, 10)
	if err := conn.SetDeadline(time.Now().Add(tr.patience)); err != nil {
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

// Push has a server, in a namespace at the route's target, push numbers to a client
// that never sends. If its conntrack entry is lost, the next packet comes from the
// server's end.
func (tr *Traffic) Push(server *namespace.Namespace, r Route) error {
	if err := tr.servePush(server, r.To); err != nil {
		return fmt.Errorf("pushing server %s: %w", r.Name, err)
	}
	return tr.Listen(r)
}

// servePush pushes numbers to every client, until the end.
func (tr *Traffic) servePush(in *namespace.Namespace, at netip.AddrPort) error {
	var listener net.Listener
	err := in.Do(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(tr.ctx, "tcp", at.String())
		return err
	})
	if err != nil {
		return err
	}
	context.AfterFunc(tr.ctx, func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go tr.push(conn)
		}
	}()
	return nil
}

func (tr *Traffic) push(conn net.Conn) {
	defer conn.Close()
	var number [8]byte
	for n := uint64(0); tr.ctx.Err() == nil; n++ {
		binary.BigEndian.PutUint64(number[:], n)
		if _, err := conn.Write(number[:]); err != nil {
			return
		}
		pause(tr.ctx, 20*time.Millisecond)
	}
}

// Listen receives the numbers of a server that Push has started.
// It returns with the first: a connection that the server has not accepted
// would end with its listener.
func (tr *Traffic) Listen(r Route) error {
	conn, err := Connect(r.From, netip.Addr{}, r.To, tr.patience)
	if err == nil {
		err = tr.number(conn, 0)
	}
	if err != nil {
		return fmt.Errorf("connection to the pushing server %s: %w", r.Name, err)
	}
	tr.once("pushing server "+r.Name, func() error { return tr.listen(conn) })
	return nil
}

func (tr *Traffic) listen(conn *os.File) error {
	defer conn.Close()
	for n := uint64(1); ; n++ {
		if err := tr.number(conn, n); err != nil {
			if tr.ctx.Err() != nil && (errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET)) {
				return nil
			}
			return fmt.Errorf("after %d numbers: %w", n, err)
		}
		tr.count(func(s *Summary) { s.Pushed++ })
	}
}

// number takes one number, which is to be the wanted one.
func (tr *Traffic) number(conn *os.File, want uint64) error {
	var number [8]byte
	if err := conn.SetDeadline(time.Now().Add(2 * tr.patience)); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, number[:]); err != nil {
		return err
	}
	if got := binary.BigEndian.Uint64(number[:]); got != want {
		return fmt.Errorf("got %d in the place of %d", got, want)
	}
	return nil
}
