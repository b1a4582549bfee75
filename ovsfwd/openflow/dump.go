package openflow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"antrea.io/libOpenflow/openflow15"
	"antrea.io/libOpenflow/util"
)

// Installed is what reconciliation needs to know of a flow in the switch.
type Installed struct {
	Table    uint8
	Priority uint16
	Cookie   uint64
}

// Ours reports whether the cookie carries our owner.
func (i Installed) Ours() bool { return i.Cookie>>ownerShift == Owner }

// Dump reads all flows of all tables. The reply comes in many parts and is
// read to its end. Only the fixed part of an entry is looked at: matches of
// foreign flows may hold anything.
func (c *Conn) Dump(ctx context.Context) ([]Installed, error) {
	c.op.Lock()
	defer c.op.Unlock()
	body := openflow15.NewFlowStatsRequest()
	body.TableId = openflow15.OFPTT_ALL
	request := &openflow15.MultipartRequest{
		Header: openflow15.NewOfp15Header(),
		Type:   openflow15.MultipartType_FlowDesc,
		Body:   []util.Message{body},
	}
	request.Header.Type = openflow15.Type_MultiPartRequest
	request.Header.Xid = c.nextXID()
	var flows []Installed
	err := c.exchange(ctx, []util.Message{request}, func(m message) (bool, error) {
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
		*flows = append(*flows, Installed{
			Table:    b[4],
			Priority: binary.BigEndian.Uint16(b[6:]),
			Cookie:   binary.BigEndian.Uint64(b[16:]),
		})
		b = b[size:]
	}
	return more, nil
}
