package openflow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"antrea.io/libOpenflow/openflow15"
	"antrea.io/libOpenflow/util"
)

// Installed is a flow in the switch, as far as reconciliation needs it.
type Installed struct {
	Table    uint8
	Priority uint16
	Cookie   uint64
	id       identity
	rest     uint64
	// tampered is true if the flow's content does not have the hash in its cookie.
	tampered bool
}

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

// Offsets of ofp_multipart_reply and ofp_flow_desc (OpenFlow 1.5.1, 7.3.5).
const (
	multipartHeader = 8
	replyMore       = 1
	flowDescFixed   = 24
)

// parseFlows goes through the entries of one part and reports whether more
// parts follow.
func parseFlows(b []byte, found func(flowEntry) error) (bool, error) {
	if len(b) < multipartHeader {
		return false, errors.New("reply too short")
	}
	more := binary.BigEndian.Uint16(b[2:])&replyMore != 0
	for b = b[multipartHeader:]; len(b) > 0; {
		if len(b) < flowDescFixed {
			return false, errors.New("entry too short")
		}
		size := int(binary.BigEndian.Uint16(b))
		if size < flowDescFixed || size > len(b) {
			return false, fmt.Errorf("entry of impossible length %d", size)
		}
		e, err := parseFlow(b[:size])
		if err == nil {
			err = found(e)
		}
		if err != nil {
			return false, err
		}
		b = b[size:]
	}
	return more, nil
}

// flowEntry is a flow as the switch wrote it.
type flowEntry struct {
	table                      uint8
	priority                   uint16
	cookie                     uint64
	match, stats, instructions []byte
}

// parseFlow reads one entry. Behind its fixed part come match, statistics and
// instructions.
func parseFlow(b []byte) (flowEntry, error) {
	e := flowEntry{table: b[4], priority: binary.BigEndian.Uint16(b[6:]), cookie: binary.BigEndian.Uint64(b[16:])}
	var err error
	if e.match, b, err = cut(b[flowDescFixed:]); err != nil {
		return e, fmt.Errorf("match: %w", err)
	}
	if e.stats, e.instructions, err = cut(b); err != nil {
		return e, fmt.Errorf("statistics: %w", err)
	}
	return e, nil
}

// cut splits off a list of fields: two bytes that are no matter, its length
// without padding, the fields, padding to a multiple of eight.
func cut(b []byte) (fields, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, errors.New("missing")
	}
	size := int(binary.BigEndian.Uint16(b[2:]))
	padded := (size + 7) / 8 * 8
	if size < 4 || padded > len(b) {
		return nil, nil, fmt.Errorf("impossible length %d", size)
	}
	return b[4:size], b[padded:], nil
}

func (e flowEntry) installed() (Installed, error) {
	f := Installed{Table: e.table, Priority: e.priority, Cookie: e.cookie}
	match, err := canonicalMatch(e.match)
	if err != nil {
		return f, err
	}
	id, sum := ofProcess.identify(f.Table, f.Priority, match)
	hash, rest := ofProcess.content(sum, e.instructions)
	f.id = id
	f.rest, f.tampered = rest, hash != f.Cookie&hashMask
	return f, nil
}

// Statistics fields (OpenFlow 1.5.1, 7.2.4.2).
const (
	packetCount = 4
	byteCount   = 5
)

// counter returns a statistics field of eight bytes, zero if it is missing.
func (e flowEntry) counter(field uint8) uint64 {
	for b := e.stats; len(b) >= 4 && len(b) >= 4+int(b[3]); b = b[4+int(b[3]):] {
		if b[2]>>1 == field && b[3] == 8 {
			return binary.BigEndian.Uint64(b[4:])
		}
	}
	return 0
}
