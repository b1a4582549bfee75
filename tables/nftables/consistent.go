package nftables

import (
	"errors"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
)

// readAttempts bounds how often a dump is repeated when others change the
// table meanwhile.
const readAttempts = 20

// retry makes a dump that is of one state of the table. start clears what an
// earlier attempt has left.
//
// The kernel calls a dump interrupted when anybody has committed anything
// meanwhile, in whatever table. On a busy node that may be always, so from the
// second attempt on it is looked at what was committed.
func (c *conn) retry(kind uint16, filter []netlink.Attribute, start func(), visit func([]byte)) (err error) {
	start()
	if err := c.dump(kind, filter, visit); !errors.Is(err, errInterrupted) {
		return err
	}
	s, _, err := subscribe(c.netns, socketBuffer)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.raw.Close()) }()
	w := witness{s: s, table: c.table, kind: kind, buffer: make([]byte, listenRead)}
	for range readAttempts {
		if _, err := w.disturbed(); err != nil {
			return err
		}
		start()
		if err := c.dump(kind, filter, visit); !errors.Is(err, errInterrupted) {
			return err
		}
		if err := c.barrier(); err != nil {
			return err
		}
		if disturbed, err := w.disturbed(); err != nil || !disturbed {
			return err
		}
	}
	return errInterrupted
}

// barrier waits until no commit is under way: what was committed was notified
// when it returns. An empty transaction does that; it waits for the lock, and
// changes nothing.
func (c *conn) barrier() error {
	rc, err := c.raw.SyscallConn()
	if err != nil {
		return err
	}
	m := &c.batch
	m.Reset()
	for _, kind := range []uint16{unix.NFNL_MSG_BATCH_BEGIN, unix.NFNL_MSG_BATCH_END} {
		c.sequence++
		m.Begin(kind, 0, c.sequence, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
		m.End()
	}
	return nfnetlink.Send(rc, m.B)
}

// witness tells whether others have changed what a dump is about.
type witness struct {
	s      *subscription
	table  string
	kind   uint16 // of the dump
	buffer []byte
}

// disturbed reports whether something was heard since the last call that
// makes a dump worthless, or something was not heard.
func (w *witness) disturbed() (bool, error) {
	disturbed := false
	var err error
	wait := w.s.connection.Control(func(fd uintptr) {
		for err == nil {
			var n int
			switch n, err = unix.Read(int(fd), w.buffer); err {
			case nil:
				disturbed = w.concerned(w.buffer[:n]) || disturbed
			case unix.EINTR:
				err = nil
			case unix.ENOBUFS:
				disturbed, err = true, nil
			}
		}
	})
	if err == unix.EAGAIN {
		err = nil
	}
	return disturbed, errors.Join(wait, err)
}

func (w *witness) concerned(datagram []byte) bool {
	for h, payload := range messages(datagram) {
		message := h.kind & 0xff
		if message == unix.NFT_MSG_NEWGEN || len(payload) < nfgenSize || payload[0] != unix.NFPROTO_INET {
			continue
		}
		if _, _, ours := concerns(message, payload[nfgenSize:], w.table); ours {
			return true
		}
		// Chains are listed of all tables of the family, and counted over all.
		if w.kind != unix.NFT_MSG_GETCHAIN {
			continue
		}
		switch message {
		case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_DELTABLE:
			return true
		}
	}
	return false
}
