package openflow

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"antrea.io/libOpenflow/common"
	"antrea.io/libOpenflow/openflow15"
	"antrea.io/libOpenflow/util"
)

const headerLen = 8

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

// message is one received OpenFlow message, header included.
type message []byte

func (m message) kind() uint8  { return m[1] }
func (m message) xid() uint32  { return binary.BigEndian.Uint32(m[4:]) }
func (m message) body() []byte { return m[headerLen:] }

// Dial connects to a bridge's management socket (<rundir>/<bridge>.mgmt) and
// agrees on OpenFlow 1.5, which the bridge's protocols column must allow.
func Dial(ctx context.Context, socket string) (*Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("openflow: %w", err)
	}
	c := &Conn{conn: conn, done: make(chan struct{}), inbox: mailbox{ready: make(chan struct{}, 1)}}
	go c.read()
	if err := c.handshake(ctx); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("openflow %s: %w", socket, err)
	}
	return c, nil
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

func (c *Conn) handshake(ctx context.Context) error {
	c.op.Lock()
	defer c.op.Unlock()
	hello, err := common.NewHello(openflow15.VERSION)
	if err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	hello.Elements = []common.HelloElem{&common.HelloElemVersionBitmap{
		HelloElemHeader: common.HelloElemHeader{Type: common.HelloElemType_VersionBitmap, Length: 8},
		Bitmaps:         []uint32{1 << openflow15.VERSION},
	}}
	hello.Xid = c.nextXID()
	features := openflow15.NewFeaturesRequest()
	features.Xid = c.nextXID()
	return c.exchange(ctx, messages(hello, features), func(m message) (bool, error) {
		switch m.kind() {
		case openflow15.Type_Error:
			return true, fmt.Errorf("version 1.5 refused (bridge protocols?): %s", reason(m))
		case openflow15.Type_FeaturesReply:
			if m[0] != openflow15.VERSION {
				return true, fmt.Errorf("switch speaks version %#x, want 1.5", m[0])
			}
			return true, nil
		}
		return false, nil
	})
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

// messages sends messages in order.
func messages(msgs ...util.Message) func(io.Writer) error {
	return func(w io.Writer) error {
		for _, m := range msgs {
			if err := write(w, m); err != nil {
				return err
			}
		}
		return nil
	}
}

func write(w io.Writer, m util.Message) error {
	b, err := m.MarshalBinary()
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	_, err = w.Write(b)
	return err
}

// read receives until the connection ends. It answers echo requests itself, so
// that an idle connection stays up. It drops messages that no operation waits for.
func (c *Conn) read() {
	r := bufio.NewReaderSize(c.conn, 1<<16)
	for {
		m, err := readMessage(r)
		if err != nil {
			c.fail(err)
			return
		}
		switch m.kind() {
		case openflow15.Type_EchoRequest:
			// Apart, since an operation may be sending: reading must go on.
			go c.echo(m)
		case openflow15.Type_PacketIn:
			if err := c.received(m); err != nil {
				c.fail(err)
				return
			}
		case openflow15.Type_PortStatus, openflow15.Type_FlowRemoved:
			// An asynchronous message, no reply.
		default:
			if m.isUpdate() {
				if err := c.updated(m); err != nil {
					c.fail(err)
					return
				}
			}
			c.inbox.put(m)
		}
	}
}

func readMessage(r io.Reader) (message, error) {
	header := make([]byte, headerLen)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint16(header[2:]))
	if size < headerLen {
		return nil, fmt.Errorf("message of impossible length %d", size)
	}
	m := append(header, make([]byte, size-headerLen)...)
	_, err := io.ReadFull(r, m[headerLen:])
	return m, err
}

// echo sends an echo request back as its reply.
func (c *Conn) echo(m message) {
	m[1] = openflow15.Type_EchoReply
	c.write.Lock()
	defer c.write.Unlock()
	if _, err := c.conn.Write(m); err != nil {
		c.fail(err)
	}
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

// mailbox holds received messages for the operation in progress. It is
// unbounded, so that the reader never waits for an operation still sending.
type mailbox struct {
	mu    sync.Mutex
	wants bool
	msgs  []message
	ready chan struct{}
}

func (b *mailbox) open() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wants = true
}

func (b *mailbox) shut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wants, b.msgs = false, nil
}

func (b *mailbox) put(m message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.wants {
		return
	}
	b.msgs = append(b.msgs, m)
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

func (b *mailbox) take() []message {
	b.mu.Lock()
	defer b.mu.Unlock()
	msgs := b.msgs
	b.msgs = nil
	return msgs
}
