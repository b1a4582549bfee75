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

// FromNowhere as a PacketOut's port: the packet has no input port.
const FromNowhere = openflow15.P_CONTROLLER

// PacketOut is a packet that the switch is to treat as if it had come by a port,
// with actions in place of the flow tables (Resubmit goes through one).
type PacketOut struct {
	InPort  uint32
	Actions []Action
	// Data is the Ethernet frame.
	Data []byte
}

// PacketOut sends packets and returns when the switch has dealt with all of
// them. One that is refused is named; the others are sent.
func (c *Conn) PacketOut(ctx context.Context, packets []PacketOut) error {
	if len(packets) == 0 {
		return nil
	}
	c.op.Lock()
	defer c.op.Unlock()
	first, barrier := c.xid+1, c.xid+1+uint32(len(packets))
	c.xid = barrier
	msgs := make([][]byte, len(packets))
	for i, p := range packets {
		var err error
		if msgs[i], err = p.wire(first + uint32(i)); err != nil {
			return fmt.Errorf("packet out %d: %w", i, err)
		}
	}
	var refused error
	err := c.exchange(ctx, func(w io.Writer) error {
		for _, m := range msgs {
			if _, err := w.Write(m); err != nil {
				return err
			}
		}
		end := openflow15.NewBarrierRequest()
		end.Xid = barrier
		return write(w, end)
	}, func(m message) (bool, error) {
		switch {
		case m.kind() == openflow15.Type_Error && m.xid() >= first && m.xid() < barrier:
			refused = errors.Join(refused, fmt.Errorf("packet out %d: %s", m.xid()-first, reason(m)))
		case m.kind() == openflow15.Type_Error:
			err := fmt.Errorf("openflow packet out: %s", reason(m))
			c.fail(err)
			return true, err
		}
		return m.kind() == openflow15.Type_BarrierReply && m.xid() == barrier, nil
	})
	return errors.Join(refused, err)
}

// wire encodes the packet (OpenFlow 1.5.1, 7.3.6).
func (p PacketOut) wire(xid uint32) ([]byte, error) {
	b := append(make([]byte, 0, 128+len(p.Data)), openflow15.VERSION, openflow15.Type_PacketOut, 0, 0)
	b = binary.BigEndian.AppendUint32(b, xid)
	b = binary.BigEndian.AppendUint32(b, math.MaxUint32) // no buffered packet
	length := len(b)
	b = append(b, 0, 0, 0, 0)
	b, err := appendMatch(b, Any().InPort(p.InPort))
	if err != nil {
		return nil, err
	}
	actions := len(b)
	for _, a := range p.Actions {
		if _, jumps := a.(gotoTable); jumps {
			return nil, fmt.Errorf("%s: not outside a table", a)
		}
		if b, err = a.wire(b); err != nil {
			return nil, fmt.Errorf("action %s: %w", a, err)
		}
	}
	size := len(b) - actions
	b = append(b, p.Data...)
	if len(b) > math.MaxUint16 {
		return nil, fmt.Errorf("%d bytes, more than a message holds", len(b))
	}
	binary.BigEndian.PutUint16(b[length:], uint16(size))
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	return b, nil
}
