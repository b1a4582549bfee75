package openflow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"antrea.io/libOpenflow/openflow15"
)

// Listen subscribes to the packets that flows send to the id. It calls got for one
// packet at a time until the connection ends. A slow got delays all other messages of
// the connection.
func (c *Conn) Listen(ctx context.Context, id, length uint16, got func(PacketIn)) error {
	c.packets.Store(&got)
	// The switch sends no packets to a management connection before the client has
	// set the length of packet that it wants.
	config := binary.BigEndian.AppendUint16([]byte{0, 0}, length)
	if err := c.command(ctx, openflow15.Type_SetConfig, config); err != nil {
		return fmt.Errorf("openflow: ask for packets: %w", err)
	}
	name := binary.BigEndian.AppendUint32(nil, niciraVendor)
	name = binary.BigEndian.AppendUint32(name, niciraSetControllerID)
	name = binary.BigEndian.AppendUint16(append(name, 0, 0, 0, 0, 0, 0), id)
	if err := c.command(ctx, openflow15.Type_Experimenter, name); err != nil {
		return fmt.Errorf("openflow: ask for packets under the id %d: %w", id, err)
	}
	return nil
}

// packetInFixed is the size of a packet in without match and frame (OpenFlow 1.5.1,
// 7.4.1), header included.
const packetInFixed = 24

// received passes a packet from the switch to the listener.
func (c *Conn) received(m message) error {
	got := c.packets.Load()
	if got == nil {
		return nil // there is no listener
	}
	if len(m) < packetInFixed {
		return errors.New("openflow packet in: too short")
	}
	match, rest, err := cut(m[packetInFixed:])
	if err != nil || len(rest) < 2 {
		return fmt.Errorf("openflow packet in: match: %w", err)
	}
	(*got)(PacketIn{Table: m[15], Cookie: binary.BigEndian.Uint64(m[16:]), match: match, Frame: rest[2:]})
	return nil
}

// command sends one message and returns when the switch has processed it. If the
// switch refuses it, the error has the reason.
func (c *Conn) command(ctx context.Context, kind uint8, body []byte) error {
	return c.commands(ctx, kind, [][]byte{body})
}

// commands sends messages of one kind, and returns when the switch has processed them. If
// it refuses some, the error has the reason for the last one.
func (c *Conn) commands(ctx context.Context, kind uint8, bodies [][]byte) error {
	c.op.Lock()
	defer c.op.Unlock()
	var all []byte
	first := c.xid + 1
	for _, body := range bodies {
		if len(body) > math.MaxUint16-headerLen {
			return fmt.Errorf("%d bytes, more than a message holds", len(body))
		}
		all = append(all, openflow15.VERSION, kind)
		all = binary.BigEndian.AppendUint16(all, uint16(headerLen+len(body)))
		all = append(binary.BigEndian.AppendUint32(all, c.nextXID()), body...)
	}
	b := openflow15.NewBarrierRequest()
	b.Xid = c.nextXID()
	var refused error
	err := c.exchange(ctx, func(w io.Writer) error {
		if _, err := w.Write(all); err != nil {
			return err
		}
		return write(w, b)
	}, func(m message) (bool, error) {
		if first <= m.xid() && m.xid() < b.Xid && m.kind() == openflow15.Type_Error {
			refused = errors.New(reason(m))
		}
		return m.xid() == b.Xid && m.kind() == openflow15.Type_BarrierReply, nil
	})
	return errors.Join(err, refused)
}
