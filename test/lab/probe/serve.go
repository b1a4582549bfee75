package probe

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/namespace"
)

// receiveBuffer holds a burst of probes to one server while this process does
// not get the processor.
const receiveBuffer = 1 << 20

// serveTCP echoes all bytes of every connection until the peer closes.
func serveTCP(ns *namespace.Namespace, at netip.AddrPort) (func() error, error) {
	return serveStreams(ns, func() (net.Listener, error) {
		return (&net.ListenConfig{}).Listen(context.Background(), network("tcp", at.Addr()), at.String())
	})
}

// serveStreams echoes on the connections of a listener, which is opened in the
// namespace.
func serveStreams(ns *namespace.Namespace, listen func() (net.Listener, error)) (func() error, error) {
	listener, err := openIn(ns, listen)
	if err != nil {
		return nil, err
	}
	e := &echo{conns: map[net.Conn]struct{}{}}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				if errors.Is(err, net.ErrClosed) {
					return
				}
				continue
			}
			go e.serve(conn)
		}
	})
	return func() error {
		err := listener.Close()
		accepting.Wait() // until then the port may be in use
		return errors.Join(err, e.close())
	}, nil
}

// Bounds of openIn.
const (
	busyFor   = 5 * time.Second
	busyPause = time.Millisecond
)

// openIn opens a socket in a namespace. The address of a socket that was just closed may
// still be in use: a child of this process has a copy until it calls execve(2).
func openIn[T any](ns *namespace.Namespace, open func() (T, error)) (socket T, err error) {
	for end := time.Now().Add(busyFor); ; time.Sleep(busyPause) {
		err = ns.Do(func() (err error) {
			socket, err = open()
			return err
		})
		if !errors.Is(err, unix.EADDRINUSE) || time.Now().After(end) {
			return socket, err
		}
	}
}

// echo is the open connections of a TCP server. They are ended with it: a
// socket left open would keep its namespace alive.
type echo struct {
	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
}

func (e *echo) serve(conn net.Conn) {
	defer conn.Close()
	if !e.add(conn) {
		return
	}
	// The error is the client's reset or the end of this server.
	// SCTP has no splice(2), which package net would use between two streams.
	_, _ = io.Copy(struct{ io.Writer }{conn}, struct{ io.Reader }{conn})
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.conns, conn)
}

func (e *echo) add(conn net.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.conns[conn] = struct{}{}
	return true
}

func (e *echo) close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	var errs []error
	for conn := range e.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

// serveUDP sends every datagram back. The socket is bound to the one address,
// so that the answer comes from the address that was asked.
func serveUDP(ns *namespace.Namespace, at netip.AddrPort) (func() error, error) {
	conn, err := openIn(ns, func() (*net.UDPConn, error) {
		return net.ListenUDP(network("udp", at.Addr()), net.UDPAddrFromAddrPort(at))
	})
	if err != nil {
		return nil, err
	}
	if err := conn.SetReadBuffer(receiveBuffer); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		buffer := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			// An answer that cannot be sent shows at the prober.
			_, _ = conn.WriteToUDPAddrPort(buffer[:n], from)
		}
	})
	return func() error {
		err := conn.Close()
		reading.Wait() // until then the port may be in use
		return err
	}, nil
}

// network returns the name package net has for a protocol over one family.
func network(proto string, addr netip.Addr) string {
	if addr.Is4() {
		return proto + "4"
	}
	return proto + "6"
}
