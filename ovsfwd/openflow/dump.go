package openflow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"antrea.io/libOpenflow/openflow15"
	"antrea.io/libOpenflow/util"
)

// Installed is what reconciliation needs to know of a flow in the switch.
type Installed struct {
	Table    uint8
	Priority uint16
	Cookie   uint64
	id       identity
	// tampered says that the flow is not what its cookie tells.
	tampered bool
}

// Dump reads the flows of all tables whose cookie has the owner in its upper 16
// bits. The reply comes in many parts and is read to its end.
func (c *Conn) Dump(ctx context.Context, owner uint16) ([]Installed, error) {
	c.op.Lock()
	defer c.op.Unlock()
	body := openflow15.NewFlowStatsRequest()
	body.TableId = openflow15.OFPTT_ALL
	body.Cookie, body.CookieMask = uint64(owner)<<ownerShift, math.MaxUint16<<ownerShift
	request := &openflow15.MultipartRequest{
		Header: openflow15.NewOfp15Header(),
		Type:   openflow15.MultipartType_FlowDesc,
		Body:   []util.Message{body},
	}
	request.Header.Type = openflow15.Type_MultiPartRequest
	request.Header.Xid = c.nextXID()
	var flows []Installed
	err := c.exchange(ctx, messages(request), func(m message) (bool, error) {
		if m.xid() != request.Header.Xid {
			return false, nil
		}
		switch m.kind() {
		case openflow15.Type_Error:
			return true, fmt.Errorf("openflow dump: %s", reason(m))
		case openflow15.Type_MultiPartReply:
			more, err := parseFlowDescs(m.body(), &flows)
			if err != nil {
				c.fail(err)
			}
			return !more, err
		}
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	return flows, nil
}

// Offsets of ofp_multipart_reply and ofp_flow_desc (OpenFlow 1.5.1, 7.3.5).
const (
	multipartHeader = 8
	replyMore       = 1
	flowDescFixed   = 24
)

// parseFlowDescs appends the entries of one part and reports whether more
// parts follow.
func parseFlowDescs(b []byte, flows *[]Installed) (bool, error) {
	if len(b) < multipartHeader {
		return false, errors.New("openflow dump: reply too short")
	}
	more := binary.BigEndian.Uint16(b[2:])&replyMore != 0
	for b = b[multipartHeader:]; len(b) > 0; {
		if len(b) < flowDescFixed {
			return false, errors.New("openflow dump: entry too short")
		}
		size := int(binary.BigEndian.Uint16(b))
		if size < flowDescFixed || size > len(b) {
			return false, fmt.Errorf("openflow dump: entry of impossible length %d", size)
		}
		f, err := parseFlowDesc(b[:size])
		if err != nil {
			return false, fmt.Errorf("openflow dump: %w", err)
		}
		*flows = append(*flows, f)
		b = b[size:]
	}
	return more, nil
}

// parseFlowDesc reads one entry. Behind its fixed part come match, statistics
// and instructions.
func parseFlowDesc(b []byte) (Installed, error) {
	f := Installed{Table: b[4], Priority: binary.BigEndian.Uint16(b[6:]), Cookie: binary.BigEndian.Uint64(b[16:])}
	match, rest, err := cut(b[flowDescFixed:])
	if err != nil {
		return f, fmt.Errorf("match: %w", err)
	}
	if match, err = canonicalMatch(match); err != nil {
		return f, err
	}
	_, instructions, err := cut(rest)
	if err != nil {
		return f, fmt.Errorf("statistics: %w", err)
	}
	f.id = identify(f.Table, f.Priority, match)
	f.tampered = content(f.id, instructions) != f.Cookie&hashMask
	return f, nil
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
