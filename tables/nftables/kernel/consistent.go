package kernel

import (
	"errors"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/tables/nftables/watch"
)

// readAttempts bounds how often a dump is repeated when others change the
// table meanwhile.
const readAttempts = 20

// dump makes a dump of one state of the table. start clears the results of an earlier attempt.
//
// The kernel calls a dump interrupted when anybody has committed anything meanwhile, in any table. On a busy
// node that may be always, so from the second attempt on dump looks at the commits themselves.
func (c *Conn) dump(kind uint16, filter []netlink.Attribute, start func(), visit func([]byte)) (err error) {
	start()
	if err := c.dumpOnce(kind, filter, visit); !errors.Is(err, errInterrupted) {
		return err
	}
	w, err := watch.NewWitness(c.netns, SocketBuffer, c.family, c.table, kind)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	for range readAttempts {
		if _, err := w.Disturbed(); err != nil {
			return err
		}
		start()
		if err := c.dumpOnce(kind, filter, visit); !errors.Is(err, errInterrupted) {
			return err
		}
		if err := c.barrier(); err != nil {
			return err
		}
		if disturbed, err := w.Disturbed(); err != nil || !disturbed {
			return err
		}
	}
	return errInterrupted
}

// barrier waits until no commit is under way: all earlier commits were notified when it returns. An empty
// transaction does that; it waits for the lock, and changes nothing.
func (c *Conn) barrier() error {
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
