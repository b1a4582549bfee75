package nfnetlink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// listenBuffer is the limit for notifications that wait.
	listenBuffer = 16 << 20
	// listenRead is the size of the buffer for one datagram; the kernel batches
	// notifications in at most 8 kB, or one page if that is more.
	listenRead = 64 << 10
)

// Listener receives the notifications of one group. It is used from one goroutine.
type Listener struct {
	netlink *netlink.Conn
	raw     syscall.RawConn
	buffer  []byte
}

// Notification is one message of a group.
type Notification struct {
	// Kind is the message's number within its subsystem, Family its protocol family.
	Kind, Family uint8
	// Port is the netlink port of the socket that made the change.
	Port uint32
	// Attributes are those of the message, to be read before the next Receive.
	Attributes []byte
}

// Listen joins a group in the network namespace of a descriptor; zero is the
// process's own.
func Listen(netns int, group uint32) (*Listener, error) {
	n, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: netns})
	if err != nil {
		return nil, fmt.Errorf("connect to netfilter: %w", err)
	}
	raw, err := n.SyscallConn()
	if err == nil {
		err = n.SetReadBuffer(listenBuffer)
	}
	if err == nil {
		err = n.JoinGroup(group)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen to netfilter: %w", err), n.Close())
	}
	return &Listener{netlink: n, raw: raw, buffer: make([]byte, listenRead)}, nil
}

// Close closes the connection.
func (l *Listener) Close() error { return l.netlink.Close() }

// Until makes Receive fail when ctx ends. Stop ends that.
func (l *Listener) Until(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = l.netlink.SetReadDeadline(time.Unix(1, 0)) })
}

// Receive waits for notifications. After an error some may be lost, and the
// Listener is useless.
func (l *Listener) Receive() (iter.Seq[Notification], error) {
	n, err := Receive(l.raw, l.buffer)
	if err != nil {
		return nil, fmt.Errorf("read notifications: %w", err)
	}
	return notifications(l.buffer[:n]), nil
}

// notifications iterates over the messages of a datagram. It ends at the first
// malformed one.
func notifications(b []byte) iter.Seq[Notification] {
	return func(yield func(Notification) bool) {
		for len(b) >= unix.NLMSG_HDRLEN {
			size := int(binary.NativeEndian.Uint32(b))
			if size < unix.NLMSG_HDRLEN || size > len(b) {
				return
			}
			if payload := b[unix.NLMSG_HDRLEN:size]; len(payload) >= genHeader {
				n := Notification{
					Kind: uint8(binary.NativeEndian.Uint16(b[4:])), Family: payload[0],
					Port: binary.NativeEndian.Uint32(b[12:]), Attributes: payload[genHeader:],
				}
				if !yield(n) {
					return
				}
			}
			b = b[min(len(b), Align(size)):]
		}
	}
}
