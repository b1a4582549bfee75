package kernel

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/expression"
	"github.com/felixlike/felixlike/tables/nftables/watch"
)

// SocketBuffer bounds the bytes in the socket, in either direction: a batch of maxBatch objects, and the echo
// of its rules. The kernel takes memory only for the bytes that are there.
const SocketBuffer = 128 << 20

// Conn is one lasting connection to nftables.
type Conn struct {
	raw     *netlink.Conn
	netns   int
	family  uint8
	table   string
	digests expression.Digester
	// Wanted is the desired state of the table; nil for a connection that reads everything.
	Wanted Wanted
	// side, if not nil, makes the dumps over a separate connection instead of raw.
	side *sideDump
	// Patience bounds the time to read a set that has more elements than wanted.
	Patience time.Duration
	// fault is that of the options.
	fault func(tables.ObjectError) error
	// sequence is that of the last message that was written here.
	sequence uint32
	// The fields below are kept to reuse their memory.
	batch    expression.Message
	buffer   []byte
	rules    ruleReader
	elements []element
}

// Options configure a connection.
type Options struct {
	// NetNS is the descriptor of the network namespace, the process's own if zero.
	NetNS int
	// Family is the family of the table: unix.NFPROTO_INET if zero, or NFPROTO_BRIDGE.
	Family uint8
	// Table is the name of the table.
	Table string
	// Seed is that of the digests: connections with the same seed agree.
	Seed maphash.Seed
	// Buffer bounds the bytes of answers that wait in the socket; SocketBuffer if zero.
	Buffer int
	// Fault stands for a refusal by the kernel, if it is not nil: see Conn.injected.
	Fault func(tables.ObjectError) error
}

// Dial connects to nf_tables.
func Dial(options Options) (*Conn, error) {
	raw, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: options.NetNS})
	if err != nil {
		return nil, fmt.Errorf("connect to nftables: %w", err)
	}
	// Ask for the kernel's explanation of a refused message; old kernels have none.
	_ = raw.SetOption(netlink.ExtendedAcknowledge, true)
	if err := errors.Join(raw.SetReadBuffer(cmp.Or(options.Buffer, SocketBuffer)), raw.SetWriteBuffer(SocketBuffer)); err != nil {
		return nil, errors.Join(fmt.Errorf("set the buffers of the connection to nftables: %w", err), raw.Close())
	}
	return &Conn{
		raw: raw, netns: options.NetNS, family: cmp.Or(options.Family, unix.NFPROTO_INET), table: options.Table, fault: options.Fault, Patience: readPatience,
		digests: expression.Digester{Seed: options.Seed}, buffer: make([]byte, readBuffer),
	}, nil
}

// Close closes the connection; the table stays as it is.
func (c *Conn) Close() error { return c.raw.Close() }

// Port returns the netlink port of the connection.
func (c *Conn) Port() uint32 { return c.raw.PID() }

// Generation reads the number of the ruleset's generation.
func (c *Conn) Generation() (uint32, error) { return watch.ReadGeneration(c.raw) }

// readBuffer holds any one datagram of the kernel's: dumps come in at most 32 kB,
// notifications and echoes in a page, an error with the message that it is about.
const readBuffer = 128 << 10

// errInterrupted says that the ruleset changed during a dump.
var errInterrupted = errors.New("dump was interrupted by a change of the ruleset")

// dumpOnce asks for all objects of a type in our family and hands the attributes
// of each to visit, which must not keep them. filter are attributes of the
// request. With an errInterrupted the visits were of mixed generations.
//
// The rest of a side dump that has enough stays unread.
func (c *Conn) dumpOnce(kind uint16, filter []netlink.Attribute, visit func(attributes []byte)) error {
	raw := c.raw
	if c.side != nil {
		raw = c.side.raw
	}
	rc, err := raw.SyscallConn()
	if err != nil {
		return err
	}
	c.sequence++
	m := &c.batch
	m.Reset()
	m.Begin(unix.NFNL_SUBSYS_NFTABLES<<8|kind, unix.NLM_F_DUMP, c.sequence, c.family, 0)
	for _, f := range filter {
		m.Data(f.Type, f.Data)
	}
	m.End()
	if err := nfnetlink.Send(rc, m.B); err != nil {
		return err
	}
	done, interrupted := false, false
	each := func(flags uint16, payload []byte) {
		interrupted = interrupted || flags&unix.NLM_F_DUMP_INTR != 0
		if len(payload) >= watch.HeaderSize {
			visit(payload[watch.HeaderSize:])
		}
	}
	wait := rc.Read(func(fd uintptr) bool {
		for err == nil && !done {
			var n int
			switch n, err = unix.Read(int(fd), c.buffer); err {
			case nil:
				done, err = eachReply(c.buffer[:n], c.sequence, each)
				done = done || c.side != nil && c.side.enough()
			case unix.EINTR:
				err = nil
			case unix.EAGAIN:
				err = nil
				return false
			}
		}
		return true
	})
	switch {
	case wait != nil:
		return wait
	case err != nil:
		return err
	case interrupted:
		return errInterrupted
	}
	return nil
}

// eachReply hands the payload of each message with the sequence number to
// visit, and reports whether the dump is complete.
func eachReply(b []byte, sequence uint32, visit func(flags uint16, payload []byte)) (done bool, err error) {
	for len(b) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			return false, errMalformed
		}
		kind, flags := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:])
		payload := b[unix.NLMSG_HDRLEN:size]
		ours := binary.NativeEndian.Uint32(b[8:]) == sequence
		b = b[min(len(b), nfnetlink.Align(size)):]
		if !ours {
			continue
		}
		if kind == unix.NLMSG_DONE || kind == unix.NLMSG_ERROR {
			if len(payload) >= 4 {
				if code := number32(payload); code != 0 {
					return true, unix.Errno(-code)
				}
			}
			if kind == unix.NLMSG_DONE {
				visit(flags, nil)
			}
			return true, nil
		}
		visit(flags, payload)
	}
	return false, nil
}

// number32 decodes a number of the netlink layer itself, in host order.
func number32(b []byte) int32 { return int32(binary.NativeEndian.Uint32(b)) }

// errMalformed reports that the received bytes are no netlink message.
var errMalformed = errors.New("malformed netlink message")
