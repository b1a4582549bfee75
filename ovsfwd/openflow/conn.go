package openflow

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"antrea.io/libOpenflow/openflow15"
)

// Conn is an OpenFlow 1.5 connection to one bridge. Operations are sequential.
// One that fails halfway (deadline, lost connection) closes the connection, so
// that no late answer is taken for another's; its owner dials again.
type Conn struct {
	conn net.Conn
	// op is held by the operation in progress, write while sending.
	op, write sync.Mutex
	inbox     mailbox
	done      chan struct{}
	closeOnce sync.Once
	err       error
	// notify receives changes of flows (Monitor); nil without a monitor.
	notify atomic.Pointer[func(changes []FlowChange, lost bool)]
	// packets receives packets that flows send to us (Listen); nil without a listener.
	packets atomic.Pointer[func(PacketIn)]
	// xid and bundle are the last ones used; guarded by op.
	xid, bundle uint32
}

// Done is closed when the connection is lost or closed.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why the connection ended, nil while it has not.
func (c *Conn) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Close ends the connection.
func (c *Conn) Close() error {
	c.fail(net.ErrClosed)
	return nil
}

// Barrier returns when the switch has processed all earlier messages.
func (c *Conn) Barrier(ctx context.Context) error {
	c.op.Lock()
	defer c.op.Unlock()
	b := openflow15.NewBarrierRequest()
	b.Xid = c.nextXID()
	return c.exchange(ctx, messages(b), func(m message) (bool, error) {
		if m.xid() == b.Xid && m.kind() == openflow15.Type_Error {
			return true, fmt.Errorf("openflow barrier: %s", reason(m))
		}
		return m.xid() == b.Xid && m.kind() == openflow15.Type_BarrierReply, nil
	})
}

// Change makes one change without a bundle. It takes one round trip; a bundle takes
// two. If the switch refuses the change, the error is a *BundleError.
func (c *Conn) Change(ctx context.Context, mod FlowMod) error {
	c.op.Lock()
	defer c.op.Unlock()
	change, err := mod.wire(nil, c.nextXID())
	if err != nil {
		return &BundleError{[]Refusal{{mod, err.Error()}}}
	}
	asked := c.xid
	b := openflow15.NewBarrierRequest()
	b.Xid = c.nextXID()
	var refused error
	err = c.exchange(ctx, func(w io.Writer) error {
		if _, err := w.Write(change); err != nil {
			return err
		}
		return write(w, b)
	}, func(m message) (bool, error) {
		if m.xid() == asked && m.kind() == openflow15.Type_Error {
			refused = &BundleError{[]Refusal{{mod, reason(m)}}}
		}
		return m.xid() == b.Xid && m.kind() == openflow15.Type_BarrierReply, nil
	})
	return errors.Join(err, refused)
}

func (c *Conn) nextXID() uint32 {
	c.xid++
	return c.xid
}

// exchange sends messages and passes each reply to handle, until handle reports
// the end. The caller holds c.op.
func (c *Conn) exchange(ctx context.Context, send func(io.Writer) error, handle func(message) (bool, error)) error {
	if err := c.Err(); err != nil {
		return fmt.Errorf("openflow connection lost: %w", err)
	}
	c.inbox.open()
	defer c.inbox.shut()
	// Sending runs beside receiving: the switch stops reading when too many of
	// its own replies wait to be taken.
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if err := c.send(send); err != nil {
			c.fail(err)
		}
	}()
	defer func() { <-sent }()
	for {
		for _, m := range c.inbox.take() {
			if done, err := handle(m); done || err != nil {
				return err
			}
		}
		select {
		case <-c.inbox.ready:
		case <-ctx.Done():
			err := fmt.Errorf("openflow: no answer in time: %w", ctx.Err())
			c.fail(err)
			return err
		case <-c.done:
			return fmt.Errorf("openflow connection lost: %w", c.err)
		}
	}
}

func (c *Conn) send(send func(io.Writer) error) error {
	c.write.Lock()
	defer c.write.Unlock()
	w := bufio.NewWriterSize(c.conn, 1<<16)
	if err := send(w); err != nil {
		return err
	}
	return w.Flush()
}

func (c *Conn) fail(err error) {
	c.closeOnce.Do(func() {
		if errors.Is(err, io.EOF) {
			err = errors.New("closed by the switch")
		}
		c.err = err
		close(c.done)
		_ = c.conn.Close()
	})
}
