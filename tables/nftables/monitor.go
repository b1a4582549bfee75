package nftables

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
)

// The waits before a subscription is taken again. One that fails at once is
// tried less and less often; each try stands for a look at the whole table, so
// that even without a subscription changes are found in the end.
const (
	resubscribeMin = 10 * time.Millisecond
	resubscribeMax = 10 * time.Second
	// steady is how long a subscription lasts that did not fail at once.
	steady = time.Second
)

// Watch calls changed whenever somebody else has changed the table, or may
// have, and an Apply would put it right. It returns when ctx ends, with its
// error, and for no other reason: when notifications are lost, or the
// connection, it takes a new one, and the next Apply reads the table in full.
//
// It may run beside all other methods, but once only. changed is called from
// the goroutine of Watch and must not wait for an Apply.
//
// Started before the first Apply, it makes no additional full read necessary.
func (t *Table) Watch(ctx context.Context, changed func()) error {
	wait := time.Duration(0)
	for {
		start := time.Now()
		err := t.listen(ctx, changed)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		t.notes.deaf()
		if errors.Is(err, errNoSubscription) {
			changed()
		}
		if wait = min(max(2*wait, resubscribeMin), resubscribeMax); time.Since(start) > steady {
			wait = 0
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// errNoSubscription says that a subscription could not be had at all.
var errNoSubscription = errors.New("cannot watch nftables")

// listen subscribes and takes notes until the subscription fails or ctx ends.
func (t *Table) listen(ctx context.Context, changed func()) error {
	s, generation, err := subscribe(t.options.NetNS, t.listenBuffer)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoSubscription, err)
	}
	defer func() {
		t.notes.deaf()
		_ = s.raw.Close() // nothing is lost with it that is not read in full
	}()
	stop := context.AfterFunc(ctx, s.end)
	defer stop()
	tell, err := t.notes.subscribed(s, generation)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoSubscription, err)
	}
	if tell {
		changed()
	}
	buffer := make([]byte, listenRead)
	for {
		n, err := nfnetlink.Receive(s.connection, buffer)
		if err != nil {
			return fmt.Errorf("read notifications: %w", err)
		}
		if t.notes.hear(buffer[:n], time.Now()) {
			changed()
			// A large change is told in thousands of datagrams. Whoever was called
			// has to begin before they are all read, on a single processor, too.
			runtime.Gosched()
		}
	}
}

// listenRead is the size of the buffer for one datagram; the kernel batches
// notifications in at most 8 kB, or one page if that is more.
const listenRead = 64 << 10

// subscription is a socket that hears all changes of nftables in its network
// namespace.
type subscription struct {
	raw        *netlink.Conn
	connection syscall.RawConn
}

// subscribe returns a socket that hears everything that comes after the
// generation which it returns.
func subscribe(netns, buffer int) (_ *subscription, generation uint32, err error) {
	raw, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: netns})
	if err != nil {
		return nil, 0, fmt.Errorf("connect to netlink: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, raw.Close())
		}
	}()
	if err := raw.SetReadBuffer(buffer); err != nil {
		return nil, 0, fmt.Errorf("set the size of the receive buffer: %w", err)
	}
	// Asked before the socket hears, so that the answer is the first to come.
	if generation, err = readGeneration(raw); err != nil {
		return nil, 0, err
	}
	s := &subscription{raw: raw}
	if s.connection, err = raw.SyscallConn(); err != nil {
		return nil, 0, err
	}
	if err := raw.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		return nil, 0, fmt.Errorf("join the group of nftables: %w", err)
	}
	return s, generation, nil
}

// end makes reading from the subscription fail.
func (s *subscription) end() { _ = s.raw.SetReadDeadline(time.Unix(1, 0)) }

// ignore makes the kernel deliver nothing that was committed from the port,
// so that a first load of our own overruns no buffer and wakes nobody up.
//
// The filter sees the first message of a datagram, and the kernel sends those
// of different commits in different ones.
func (s *subscription) ignore(port uint32) error {
	const portAt = 12 // nlmsg_pid in struct nlmsghdr
	// A load takes the bytes as big endian, while they are in the host's order.
	wanted := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, port))
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: portAt},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: wanted},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: ^uint32(0)},
	}
	if port == 0 {
		// Nobody's: 0 is the kernel itself, which does not commit.
		program = program[3:]
	}
	if err := s.filter(program); err != nil {
		return fmt.Errorf("set the filter of notifications: %w", err)
	}
	return nil
}

// filter makes the kernel deliver only what the program returns nonzero for.
func (s *subscription) filter(program []unix.SockFilter) error {
	var err error
	control := s.connection.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	})
	return errors.Join(err, control)
}

// readGeneration asks for the number of the ruleset's generation.
func readGeneration(raw *netlink.Conn) (uint32, error) {
	replies, err := raw.Execute(request(unix.NFT_MSG_GETGEN, netlink.Request, unix.NFPROTO_UNSPEC, nil))
	if err != nil {
		return 0, fmt.Errorf("read the generation of the ruleset: %w", err)
	}
	for _, r := range replies {
		if len(r.Data) < nfgenSize {
			continue
		}
		for kind, v := range nfnetlink.Attributes(r.Data[nfgenSize:]) {
			if kind == unix.NFTA_GEN_ID {
				return nfnetlink.Uint32(v), nil
			}
		}
	}
	return 0, errors.New("read the generation of the ruleset: the kernel does not tell")
}

// nfgenSize is the size of struct nfgenmsg: family, version, and the lower half
// of the generation in network order.
const nfgenSize = 4

func resource(payload []byte) uint16 { return binary.BigEndian.Uint16(payload[2:]) }

// header is what is of interest in struct nlmsghdr.
type header struct {
	kind, flags    uint16
	sequence, port uint32
}

// messages iterates over the netlink messages in b. It ends at the first
// malformed one.
func messages(b []byte) iter.Seq2[header, []byte] {
	return func(yield func(header, []byte) bool) {
		for len(b) >= unix.NLMSG_HDRLEN {
			size := int(binary.NativeEndian.Uint32(b))
			if size < unix.NLMSG_HDRLEN || size > len(b) {
				return
			}
			h := header{
				kind: binary.NativeEndian.Uint16(b[4:]), flags: binary.NativeEndian.Uint16(b[6:]),
				sequence: binary.NativeEndian.Uint32(b[8:]), port: binary.NativeEndian.Uint32(b[12:]),
			}
			if !yield(h, b[unix.NLMSG_HDRLEN:size]) {
				return
			}
			b = b[min(len(b), nfnetlink.Align(size)):]
		}
	}
}
