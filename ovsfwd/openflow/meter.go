package openflow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"antrea.io/libOpenflow/openflow15"
)

type meter uint32

// Meter drops the packet and skips the remaining actions if the packet exceeds the rate
// of this meter (SetMeter).
func Meter(id uint32) Action { return meter(id) }

func (a meter) String() string { return fmt.Sprintf("meter:%d", uint32(a)) }

func (a meter) wire(b []byte) ([]byte, error) {
	start := len(b)
	b = binary.BigEndian.AppendUint32(startAction(b, actionMeter), uint32(a))
	return endAction(b, start), nil
}

// SetMeter adds or changes a meter that passes perSecond packets a second, with a burst of
// the same size.
func (c *Conn) SetMeter(ctx context.Context, id, perSecond uint32) error {
	refused := c.commands(ctx, openflow15.Type_MeterMod, [][]byte{setMeter(openflow15.MC_MODIFY, id, perSecond)})
	if refused != nil {
		refused = c.commands(ctx, openflow15.Type_MeterMod, [][]byte{setMeter(openflow15.MC_ADD, id, perSecond)})
	}
	if refused != nil {
		return fmt.Errorf("openflow meter %d: %w", id, refused)
	}
	return nil
}

// AddMeters adds meters as SetMeter does. The switch must not have them.
func (c *Conn) AddMeters(ctx context.Context, ids []uint32, perSecond uint32) error {
	var bodies [][]byte
	for _, id := range ids {
		bodies = append(bodies, setMeter(openflow15.MC_ADD, id, perSecond))
	}
	if err := c.commands(ctx, openflow15.Type_MeterMod, bodies); err != nil {
		return fmt.Errorf("add %d openflow meters: %w", len(ids), err)
	}
	return nil
}

func setMeter(command uint16, id, perSecond uint32) []byte {
	body := meterMod(command, openflow15.MF_PKTPS|openflow15.MF_BURST|openflow15.MF_STATS, id)
	body = binary.BigEndian.AppendUint16(body, openflow15.MBT_DROP)
	body = binary.BigEndian.AppendUint16(body, openflow15.METER_BAND_LEN)
	body = binary.BigEndian.AppendUint32(body, perSecond)
	body = binary.BigEndian.AppendUint32(body, perSecond)
	return append(body, 0, 0, 0, 0)
}

// DeleteMeters removes those of the meters that the switch has. The switch then removes
// the flows that use them.
func (c *Conn) DeleteMeters(ctx context.Context, ids []uint32) error {
	var bodies [][]byte
	for _, id := range ids {
		bodies = append(bodies, meterMod(openflow15.MC_DELETE, 0, id))
	}
	if err := c.commands(ctx, openflow15.Type_MeterMod, bodies); err != nil {
		return fmt.Errorf("delete openflow meters %v: %w", ids, err)
	}
	return nil
}

func meterMod(command, flags uint16, id uint32) []byte {
	b := binary.BigEndian.AppendUint16(nil, command)
	b = binary.BigEndian.AppendUint16(b, flags)
	return binary.BigEndian.AppendUint32(b, id)
}

// Offsets of an ofp_meter_stats (OpenFlow 1.5.1, 7.3.5.14), and its sizes without a band
// and with one.
const (
	meterLength      = 4
	meterBandPackets = 40
	meterStatsNoBand = 40
	meterStatsSize   = 56
)

// allMeters is OFPM_ALL.
const allMeters uint32 = 0xffffffff

// MeterDropped returns how many packets a meter of one band has dropped.
func (c *Conn) MeterDropped(ctx context.Context, id uint32) (uint64, error) {
	found, err := c.meters(ctx, id)
	if err != nil {
		return 0, err
	}
	dropped, there := found[id]
	if !there {
		return 0, fmt.Errorf("openflow meter %d: the switch does not have it", id)
	}
	return dropped, nil
}

// Meters returns the meters of one band that the switch has, and how many packets each
// has dropped.
func (c *Conn) Meters(ctx context.Context) (map[uint32]uint64, error) {
	return c.meters(ctx, allMeters)
}

func (c *Conn) meters(ctx context.Context, id uint32) (map[uint32]uint64, error) {
	dropped := map[uint32]uint64{}
	body := append(binary.BigEndian.AppendUint32(nil, id), 0, 0, 0, 0)
	err := c.multipart(ctx, openflow15.MultipartType_MeterStats, body, func(b []byte) error {
		for len(b) > 0 {
			if len(b) < meterStatsNoBand {
				return errors.New("entry too short")
			}
			size := int(binary.BigEndian.Uint16(b[meterLength:]))
			if size < meterStatsNoBand || size > len(b) {
				return fmt.Errorf("entry of impossible length %d", size)
			}
			if size >= meterStatsSize { // others have meters without bands
				dropped[binary.BigEndian.Uint32(b)] = binary.BigEndian.Uint64(b[meterBandPackets:])
			}
			b = b[size:]
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("openflow meters: %w", err)
	}
	return dropped, nil
}

// multipart sends a request and hands on the body of each part of the reply.
func (c *Conn) multipart(ctx context.Context, kind uint16, body []byte, part func([]byte) error) error {
	c.op.Lock()
	defer c.op.Unlock()
	xid := c.nextXID()
	request := []byte{openflow15.VERSION, openflow15.Type_MultiPartRequest}
	request = binary.BigEndian.AppendUint16(request, uint16(headerLen+multipartHeader+len(body)))
	request = binary.BigEndian.AppendUint32(request, xid)
	request = binary.BigEndian.AppendUint16(request, kind)
	request = append(append(request, 0, 0, 0, 0, 0, 0), body...)
	return c.exchange(ctx, func(w io.Writer) error {
		_, err := w.Write(request)
		return err
	}, func(m message) (bool, error) {
		switch {
		case m.xid() != xid:
			return false, nil
		case m.kind() == openflow15.Type_Error:
			return true, errors.New(reason(m))
		case len(m.body()) < multipartHeader:
			return true, errors.New("reply too short")
		}
		err := part(m.body()[multipartHeader:])
		return err != nil || binary.BigEndian.Uint16(m.body()[2:])&replyMore == 0, err
	})
}
