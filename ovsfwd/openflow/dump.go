package openflow

import (
	"context"
	"encoding/binary"
	"fmt"

	"antrea.io/libOpenflow/openflow15"
	"antrea.io/libOpenflow/util"
)

// Dump reads the flows of all tables whose cookie has the owner in its upper 16
// bits.
func (c *Conn) Dump(ctx context.Context, owner uint16) ([]Installed, error) {
	var flows []Installed
	err := c.flows(ctx, owner, openflow15.OFPTT_ALL, func(e flowEntry) error {
		f, err := e.installed()
		flows = append(flows, f)
		return err
	})
	if err != nil {
		return nil, err
	}
	return flows, nil
}

// FlowStats is how much traffic a flow has had.
type FlowStats struct {
	Table          uint8
	Priority       uint16
	Cookie         uint64
	Packets, Bytes uint64
	// Note is that of the first action, zero if it is none.
	Note  NoteText
	match []byte
}

// Value returns the lower 64 bits of the value that the flow matches in a field,
// and whether it does match the field.
func (s FlowStats) Value(f Field) (uint64, bool) {
	want := f.spec()
	for b := s.match; len(b) >= 4; {
		size := 4 + int(b[3])
		if class(binary.BigEndian.Uint16(b)) == want.class && b[2]>>1 == want.number && size >= 4+want.width {
			return number(b[4 : 4+want.width]), true
		}
		b = b[size:]
	}
	return 0, false
}

// FlowStats reads the counters of the flows of one table whose cookie has the
// owner in its upper 16 bits.
func (c *Conn) FlowStats(ctx context.Context, owner uint16, table uint8) ([]FlowStats, error) {
	var flows []FlowStats
	err := c.flows(ctx, owner, table, func(e flowEntry) error {
		match, err := canonicalMatch(e.match)
		if err != nil {
			return err
		}
		flows = append(flows, FlowStats{
			Table: e.table, Priority: e.priority, Cookie: e.cookie, match: match,
			Packets: e.counter(packetCount), Bytes: e.counter(byteCount), Note: e.note(),
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return flows, nil
}

// flows reads the flows of a table (or all) and an owner. The reply comes in
// many parts and is read to its end.
func (c *Conn) flows(ctx context.Context, owner uint16, table uint8, found func(flowEntry) error) error {
	c.op.Lock()
	defer c.op.Unlock()
	body := openflow15.NewFlowStatsRequest()
	body.TableId = table
	body.Cookie, body.CookieMask = uint64(owner)<<ownerShift, ownerBits
	request := &openflow15.MultipartRequest{
		Header: openflow15.NewOfp15Header(),
		Type:   openflow15.MultipartType_FlowDesc,
		Body:   []util.Message{body},
	}
	request.Header.Type = openflow15.Type_MultiPartRequest
	request.Header.Xid = c.nextXID()
	return c.exchange(ctx, messages(request), func(m message) (bool, error) {
		if m.xid() != request.Header.Xid {
			return false, nil
		}
		switch m.kind() {
		case openflow15.Type_Error:
			return true, fmt.Errorf("openflow flows: %s", reason(m))
		case openflow15.Type_MultiPartReply:
			more, err := parseFlows(m.body(), found)
			if err != nil {
				err = fmt.Errorf("openflow flows: %w", err)
				c.fail(err)
			}
			return !more, err
		}
		return false, nil
	})
}
