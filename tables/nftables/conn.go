package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"syscall"

	nft "github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// socketBuffer is the limit for what waits in the socket, in either direction:
// a batch of maxBatch objects, and the echo of its rules. The kernel takes
// memory only for what is there.
const socketBuffer = 128 << 20

// conn is one lasting connection to nftables. The library builds and sends
// the batches; the dumps are read here, since that takes a fifth to a tenth of
// the time and most of what they hold is of no interest.
type conn struct {
	nft *nft.Conn
	raw *netlink.Conn
}

func dial(netns int) (*conn, error) {
	c := &conn{}
	options := []nft.ConnOption{nft.AsLasting(), nft.WithSockOptions(func(raw *netlink.Conn) error {
		c.raw = raw
		// What the kernel says in words about a refused message; old kernels
		// do without.
		_ = raw.SetOption(netlink.ExtendedAcknowledge, true)
		return errors.Join(raw.SetReadBuffer(socketBuffer), raw.SetWriteBuffer(socketBuffer))
	})}
	if netns > 0 {
		options = append(options, nft.WithNetNSFd(netns))
	}
	library, err := nft.New(options...)
	if err != nil {
		return nil, fmt.Errorf("connect to nftables: %w", err)
	}
	c.nft = library
	return c, nil
}

func (c *conn) close() error { return c.nft.CloseLasting() }

// flush sends the operations as one transaction. If the kernel refuses one,
// nothing is changed, and the error says which.
func (c *conn) flush(ops []op) error {
	for i := range ops {
		if err := ops[i].emit(c.nft); err != nil {
			return about(ops[i], err)
		}
	}
	err := c.nft.Flush()
	if err == nil {
		return nil
	}
	var refused *netlink.OpError
	if !errors.As(err, &refused) || refused.Sequence == 0 {
		return fmt.Errorf("commit: %w", err)
	}
	reason := fmt.Errorf("the kernel refuses: %w", refused.Err)
	if refused.Message != "" {
		reason = fmt.Errorf("%w (%s)", reason, refused.Message)
	}
	if i, ok := c.indexOf(refused.Sequence, len(ops)); ok {
		return about(ops[i], reason)
	}
	return fmt.Errorf("commit: %w", reason)
}

func about(o op, err error) error {
	e := o.about
	e.Err = err
	return &e
}

// indexOf returns the index of the operation that was sent with a sequence
// number in the last batch of n. Numbers are given out in order, so the next
// one, asked for by sending something harmless, tells those of the batch:
// begin, n messages, end.
func (c *conn) indexOf(sequence uint32, n int) (int, bool) {
	next, err := c.raw.Send(request(unix.NFT_MSG_GETGEN, netlink.Request, unix.NFPROTO_UNSPEC, nil))
	if err != nil {
		return 0, false
	}
	i := int(int32(sequence - (next.Header.Sequence - 1 - uint32(n))))
	return i, i >= 0 && i < n
}

// hasTable reports whether the table exists.
func (c *conn) hasTable(name string) (bool, error) {
	_, err := c.nft.ListTableOfFamily(name, nft.TableFamilyINet)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.ENOENT):
		return false, nil
	}
	return false, fmt.Errorf("read table inet %s: %w", name, err)
}

func request(message uint16, flags netlink.HeaderFlags, family byte, attributes []byte) netlink.Message {
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | message), Flags: flags},
		// struct nfgenmsg: family, version, resource.
		Data: append([]byte{family, unix.NFNETLINK_V0, 0, 0}, attributes...),
	}
}

// errInterrupted says that the ruleset changed during a dump.
var errInterrupted = errors.New("dump was interrupted by a change of the ruleset")

// dump asks for all objects of a type in our family and hands the attributes
// of each to visit, which must not keep them. filter are attributes of the
// request. With an errInterrupted the visits were of mixed generations.
func (c *conn) dump(message uint16, filter []netlink.Attribute, visit func(attributes []byte)) error {
	attributes, err := netlink.MarshalAttributes(filter)
	if err != nil {
		return err
	}
	sent, err := c.raw.Send(request(message, netlink.Request|netlink.Dump, unix.NFPROTO_INET, attributes))
	if err != nil {
		return err
	}
	rc, err := c.raw.SyscallConn()
	if err != nil {
		return err
	}
	buffer := make([]byte, 64<<10) // the kernel's dumps come in at most 32 kB
	interrupted := false
	for {
		n, err := receive(rc, buffer)
		if err != nil {
			return err
		}
		done, err := eachReply(buffer[:n], sent.Header.Sequence, func(flags uint16, payload []byte) {
			interrupted = interrupted || flags&unix.NLM_F_DUMP_INTR != 0
			if len(payload) >= 4 {
				visit(payload[4:])
			}
		})
		switch {
		case err != nil:
			return err
		case done && interrupted:
			return errInterrupted
		case done:
			return nil
		}
	}
}

// eachReply hands the payload of each message with the sequence number to
// visit, and reports whether the dump is complete.
func eachReply(b []byte, sequence uint32, visit func(flags uint16, payload []byte)) (done bool, err error) {
	for len(b) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			return false, errors.New("malformed netlink message")
		}
		kind, flags := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:])
		payload := b[unix.NLMSG_HDRLEN:size]
		ours := binary.NativeEndian.Uint32(b[8:]) == sequence
		b = b[min(len(b), align(size)):]
		if !ours {
			continue
		}
		if kind == unix.NLMSG_DONE || kind == unix.NLMSG_ERROR {
			if len(payload) >= 4 {
				if code := int32(binary.NativeEndian.Uint32(payload)); code != 0 {
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

func receive(rc syscall.RawConn, buffer []byte) (int, error) {
	var n int
	var err error
	wait := rc.Read(func(fd uintptr) bool {
		for {
			if n, _, err = unix.Recvfrom(int(fd), buffer, 0); err != unix.EINTR {
				return err != unix.EAGAIN
			}
		}
	})
	if wait != nil {
		return 0, wait
	}
	return n, err
}

// attributes iterates over the netlink attributes in b, without the flags in
// their types. It ends at the first malformed one.
func attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.NLA_HDRLEN {
			size := int(binary.NativeEndian.Uint16(b))
			if size < unix.NLA_HDRLEN || size > len(b) {
				return
			}
			kind := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
			if !yield(kind, b[unix.NLA_HDRLEN:size]) {
				return
			}
			b = b[min(len(b), align(size)):]
		}
	}
}

// align rounds up to the 4 bytes on which netlink messages and attributes
// begin.
func align(n int) int { return (n + 3) &^ 3 }
