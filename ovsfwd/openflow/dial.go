package openflow

import (
	"bufio"
	"context"
	"fmt"
	"net"

	"antrea.io/libOpenflow/common"
	"antrea.io/libOpenflow/openflow15"
)

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
	if err := handshake(ctx, c); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("openflow %s: %w", socket, err)
	}
	return c, nil
}

func handshake(ctx context.Context, c *Conn) error {
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

// echo sends an echo request back as its reply.
func (c *Conn) echo(m message) {
	m[1] = openflow15.Type_EchoReply
	c.write.Lock()
	defer c.write.Unlock()
	if _, err := c.conn.Write(m); err != nil {
		c.fail(err)
	}
}
