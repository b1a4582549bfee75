package openflow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"

	"antrea.io/libOpenflow/openflow15"
)

type controller struct{ id, length uint16 }

// Controller sends the first length bytes of the packet to the connections that listen
// with the id (Conn.Listen).
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

type meteredController struct {
	controller
	meter uint32
}

// MeteredController is Controller within the rate of a meter. Above it the packet is not
// sent, and goes on as if there were no such action.
func MeteredController(id, length uint16, meter uint32) Action {
	return meteredController{controller{id, length}, meter}
}

func (a meteredController) String() string {
	return fmt.Sprintf("controller(max_len=%d,id=%d,meter_id=%d)", a.length, a.id, a.meter)
}

// Properties of niciraController2.
const (
	controllerLength = 0
	controllerID     = 1
	controllerMeter  = 5
)

func (a meteredController) wire(b []byte) ([]byte, error) {
	start := len(b)
	b = append(startNicira(b, niciraController2), 0, 0, 0, 0, 0, 0)
	short := func(property, value uint16) {
		b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, property), 8)
		b = append(binary.BigEndian.AppendUint16(b, value), 0, 0)
	}
	// In the order of ovs-vswitchd, and with its lengths, which count the padding: its dumps have these.
	short(controllerLength, a.length)
	short(controllerID, a.id)
	b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, controllerMeter), 8)
	b = binary.BigEndian.AppendUint32(b, a.meter)
	return endAction(b, start), nil
}

// reasonAction is OFPR_ACTION. It is ovs-vswitchd's default, which its dumps omit.
const reasonAction = 1

// PacketIn is a packet that a flow has sent.
type PacketIn struct {
	// Table and Cookie are the flow's.
	Table  uint8
	Cookie uint64
	// match has the input port, the tunnel's addresses, and the registers that are not zero, in pairs.
	match []byte
	// Frame is the Ethernet frame, as far as it was sent.
	Frame []byte
}

// Register returns the value that a register had where the packet was sent.
func (p PacketIn) Register(number uint8) uint32 {
	pair := p.value(registerPairs, number/2, 8)
	if pair == nil {
		return 0
	}
	return binary.BigEndian.Uint32(pair[4*(number%2):])
}

// InPort returns the port that the packet came by, zero if it came by none.
func (p PacketIn) InPort() uint32 {
	s := InPort.spec()
	port := p.value(s.class, s.number, s.width)
	if port == nil {
		return 0
	}
	return binary.BigEndian.Uint32(port)
}

// TunnelSource returns the source of a tunnelled packet's outer IPv4 header. It is not valid for another packet.
func (p PacketIn) TunnelSource() netip.Addr {
	s := TunSrc.spec()
	source, _ := netip.AddrFromSlice(p.value(s.class, s.number, s.width))
	return source
}

// value returns a field of the match, nil if the match does not have it.
func (p PacketIn) value(of class, number uint8, width int) []byte {
	for b := p.match; len(b) >= 4; {
		size := 4 + int(b[3])
		if size > len(b) {
			return nil
		}
		if class(binary.BigEndian.Uint16(b)) == of && b[2]>>1 == number && size >= 4+width {
			return b[4 : 4+width]
		}
		b = b[size:]
	}
	return nil
}

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
