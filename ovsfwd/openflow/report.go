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

type meter uint32

// Meter drops the packet, with the actions that are still to come, where there are
// more packets than the meter of that number lets through (SetMeter).
func Meter(id uint32) Action { return meter(id) }

func (a meter) String() string { return fmt.Sprintf("meter:%d", uint32(a)) }

func (a meter) wire(b []byte) ([]byte, error) {
	start := len(b)
	b = binary.BigEndian.AppendUint32(startAction(b, actionMeter), uint32(a))
	return endAction(b, start), nil
}

type controller struct{ id, length uint16 }

// Controller sends the first length bytes of the packet to those who listen under
// the id (Conn.Listen).
func Controller(id, length uint16) Action { return controller{id, length} }

func (a controller) String() string {
	return fmt.Sprintf("controller(max_len=%d,id=%d)", a.length, a.id)
}

func (a controller) wire(b []byte) ([]byte, error) {
	start := len(b)
	b = startNicira(b, niciraController)
	b = binary.BigEndian.AppendUint16(b, a.length)
	b = binary.BigEndian.AppendUint16(b, a.id)
	b = append(b, reasonAction, 0)
	return endAction(b, start), nil
}

// reasonAction is OFPR_ACTION: what ovs-vswitchd takes for granted, and so does not
// write.
const reasonAction = 1

// PacketIn is a packet that a flow has sent.
type PacketIn struct {
	// Table and Cookie are the flow's.
	Table  uint8
	Cookie uint64
	// Frame is the Ethernet frame, as far as it was sent.
	Frame []byte
}

// Listen has the switch send what flows send to the id. got is called until the
// connection ends, one packet at a time, and delays whatever else comes over the
// connection.
func (c *Conn) Listen(ctx context.Context, id, length uint16, got func(PacketIn)) error {
	c.packets.Store(&got)
	// A connection to the management socket is told nothing before it has said how
	// much of a packet it wants.
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

// received hands on a packet that the switch has sent.
func (c *Conn) received(m message) error {
	got := c.packets.Load()
	if got == nil {
		return nil // nobody asked
	}
	if len(m) < packetInFixed {
		return errors.New("openflow packet in: too short")
	}
	_, rest, err := cut(m[packetInFixed:])
	if err != nil || len(rest) < 2 {
		return fmt.Errorf("openflow packet in: match: %w", err)
	}
	(*got)(PacketIn{Table: m[15], Cookie: binary.BigEndian.Uint64(m[16:]), Frame: rest[2:]})
	return nil
}

// SetMeter has the switch keep a meter that lets so many packets a second through,
// with a burst of as many.
func (c *Conn) SetMeter(ctx context.Context, id, perSecond uint32) error {
	const flags = openflow15.MF_PKTPS | openflow15.MF_BURST | openflow15.MF_STATS
	var refused error
	for _, command := range []uint16{openflow15.MC_MODIFY, openflow15.MC_ADD} {
		body := meterMod(command, flags, id)
		body = binary.BigEndian.AppendUint16(body, openflow15.MBT_DROP)
		body = binary.BigEndian.AppendUint16(body, openflow15.METER_BAND_LEN)
		body = binary.BigEndian.AppendUint32(body, perSecond)
		body = binary.BigEndian.AppendUint32(body, perSecond)
		body = append(body, 0, 0, 0, 0)
		if refused = c.command(ctx, openflow15.Type_MeterMod, body); refused == nil {
			return nil
		}
	}
	return fmt.Errorf("openflow meter %d: %w", id, refused)
}

// DeleteMeter removes a meter, if it is there. What flows still name it go as well.
func (c *Conn) DeleteMeter(ctx context.Context, id uint32) error {
	if err := c.command(ctx, openflow15.Type_MeterMod, meterMod(openflow15.MC_DELETE, 0, id)); err != nil {
		return fmt.Errorf("openflow meter %d: %w", id, err)
	}
	return nil
}

func meterMod(command, flags uint16, id uint32) []byte {
	b := binary.BigEndian.AppendUint16(nil, command)
	b = binary.BigEndian.AppendUint16(b, flags)
	return binary.BigEndian.AppendUint32(b, id)
}

// Offsets of an ofp_meter_stats (OpenFlow 1.5.1, 7.3.5.14).
const (
	meterBandPackets = 40
	meterStatsSize   = 56
)

// MeterDropped returns how many packets a meter of one band has dropped.
func (c *Conn) MeterDropped(ctx context.Context, id uint32) (uint64, error) {
	c.op.Lock()
	defer c.op.Unlock()
	xid := c.nextXID()
	request := []byte{openflow15.VERSION, openflow15.Type_MultiPartRequest, 0, 24}
	request = binary.BigEndian.AppendUint32(request, xid)
	request = binary.BigEndian.AppendUint16(request, openflow15.MultipartType_MeterStats)
	request = append(request, 0, 0, 0, 0, 0, 0)
	request = append(binary.BigEndian.AppendUint32(request, id), 0, 0, 0, 0)
	var dropped uint64
	err := c.exchange(ctx, func(w io.Writer) error {
		_, err := w.Write(request)
		return err
	}, func(m message) (bool, error) {
		switch {
		case m.xid() != xid:
			return false, nil
		case m.kind() == openflow15.Type_Error:
			return true, fmt.Errorf("openflow meter %d: %s", id, reason(m))
		case len(m.body()) < multipartHeader+meterStatsSize:
			return true, fmt.Errorf("openflow meter %d: it is not there", id)
		}
		dropped = binary.BigEndian.Uint64(m.body()[multipartHeader+meterBandPackets:])
		return true, nil
	})
	return dropped, err
}

// command sends one message, and returns when the switch has done what it says, or
// why it has not.
func (c *Conn) command(ctx context.Context, kind uint8, body []byte) error {
	c.op.Lock()
	defer c.op.Unlock()
	if len(body) > math.MaxUint16-headerLen {
		return fmt.Errorf("%d bytes, more than a message holds", len(body))
	}
	asked := c.nextXID()
	m := binary.BigEndian.AppendUint16([]byte{openflow15.VERSION, kind}, uint16(headerLen+len(body)))
	m = append(binary.BigEndian.AppendUint32(m, asked), body...)
	b := openflow15.NewBarrierRequest()
	b.Xid = c.nextXID()
	var refused error
	err := c.exchange(ctx, func(w io.Writer) error {
		if _, err := w.Write(m); err != nil {
			return err
		}
		return write(w, b)
	}, func(m message) (bool, error) {
		if m.xid() == asked && m.kind() == openflow15.Type_Error {
			refused = errors.New(reason(m))
		}
		return m.xid() == b.Xid && m.kind() == openflow15.Type_BarrierReply, nil
	})
	return errors.Join(err, refused)
}
