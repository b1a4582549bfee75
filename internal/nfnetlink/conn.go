package nfnetlink

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// receiveBuffer is the limit for answers that wait: an error returns the
	// whole message that it is about.
	receiveBuffer = 4 << 20
	// replyTimeout bounds the wait for an answer. The kernel answers before
	// sending returns, so that it only ends a wait for one that got lost.
	replyTimeout = 10 * time.Second
)

// Conn is a connection to netfilter. It is used from one goroutine.
type Conn struct {
	netlink *netlink.Conn
	raw     syscall.RawConn
	next    uint32
	buffer  []byte
}

// Dial connects to netfilter in the network namespace of a descriptor; zero is
// the process's own.
func Dial(netns int) (*Conn, error) {
	n, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: netns})
	if err != nil {
		return nil, fmt.Errorf("connect to netfilter: %w", err)
	}
	raw, err := n.SyscallConn()
	if err == nil {
		err = n.SetReadBuffer(receiveBuffer)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to netfilter: %w", err), n.Close())
	}
	// The kernel's dumps come in at most 32 kB, an error with its message in
	// little more than MaxNest.
	return &Conn{netlink: n, raw: raw, next: 1, buffer: make([]byte, 128<<10)}, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.netlink.Close() }

// Do sends the messages at once, all of which must ask for an answer
// (NLM_F_ACK), and hands the outcome of each to visit: its number, the error
// (zero for success), and with an error the attributes of the message as the
// kernel returns them. The kernel goes on behind a message that it refuses.
//
// An error means that the outcomes are not known; the connection is then of no
// more use.
func (c *Conn) Do(m *Messages, visit func(i int, code unix.Errno, attributes []byte)) error {
	first := c.next
	if err := c.send(m); err != nil {
		return err
	}
	for open := m.count; open > 0; {
		n, err := c.receive()
		if err != nil {
			return err
		}
		for r, err := range replies(c.buffer[:n]) {
			i := r.sequence - first
			switch {
			case err != nil:
				return err
			case r.kind == unix.NLMSG_ERROR && i < uint32(m.count):
				open--
				code, attributes := r.outcome()
				if code == unix.EPERM {
					// Said once, for all that was sent.
					return code
				}
				visit(int(i), code, attributes)
			}
		}
	}
	return nil
}

// Dump sends one message, which must ask for a dump (NLM_F_DUMP), and hands
// the attributes of each answer to visit, which must not keep them. The error
// number is not zero if the kernel refuses. After an error the connection is
// useless.
func (c *Conn) Dump(m *Messages, visit func(attributes []byte)) (unix.Errno, error) {
	sequence := c.next
	if err := c.send(m); err != nil {
		return 0, err
	}
	for {
		n, err := c.receive()
		if err != nil {
			return 0, err
		}
		for r, err := range replies(c.buffer[:n]) {
			switch {
			case err != nil:
				return 0, err
			case r.sequence != sequence:
			case r.kind == unix.NLMSG_DONE || r.kind == unix.NLMSG_ERROR:
				code, _ := r.outcome()
				return code, nil
			case len(r.payload) >= genHeader:
				visit(r.payload[genHeader:])
			}
		}
	}
}

func (c *Conn) send(m *Messages) error {
	if err := c.netlink.SetReadDeadline(time.Now().Add(replyTimeout)); err != nil {
		return err
	}
	m.number(c.next)
	c.next += uint32(m.count)
	if err := Send(c.raw, m.B); err != nil {
		return fmt.Errorf("send to netfilter: %w", err)
	}
	return nil
}

// receive fills the buffer with the next datagram.
func (c *Conn) receive() (int, error) {
	n, err := Receive(c.raw, c.buffer)
	if err != nil {
		return 0, fmt.Errorf("receive from netfilter: %w", err)
	}
	return n, nil
}

// Send writes to a netlink socket. When it returns, the kernel has handled the
// messages.
func Send(socket syscall.RawConn, b []byte) error {
	var err error
	wait := socket.Write(func(fd uintptr) bool {
		for {
			if _, err = unix.Write(int(fd), b); err != unix.EINTR {
				return err != unix.EAGAIN
			}
		}
	})
	return errors.Join(wait, err)
}

// Receive reads the next datagram from a netlink socket, and returns its length.
// It waits for as long as the socket's deadline allows.
func Receive(socket syscall.RawConn, buffer []byte) (int, error) {
	var n int
	var err error
	wait := socket.Read(func(fd uintptr) bool {
		for {
			if n, err = unix.Read(int(fd), buffer); err != unix.EINTR {
				return err != unix.EAGAIN
			}
		}
	})
	if wait != nil {
		return 0, wait
	}
	return n, err
}
