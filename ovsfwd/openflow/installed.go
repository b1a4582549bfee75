package openflow

import (
	"encoding/binary"
	"errors"
	"fmt"

	"antrea.io/libOpenflow/openflow15"
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

// Sizes of the headers of an apply-actions instruction and of its first action.
const (
	instructionHeader = 8
	noteHeader        = 10
	noteSize          = instructionHeader + noteHeader + len(NoteText{})
)

// note returns the text of the note that the actions begin with, zero if there is none.
func (e flowEntry) note() NoteText {
	b := e.instructions
	if len(b) < noteSize || binary.BigEndian.Uint16(b) != openflow15.InstrType_APPLY_ACTIONS {
		return NoteText{}
	}
	start, _ := note{}.wire(nil)
	if string(b[instructionHeader:instructionHeader+noteHeader]) != string(start[:noteHeader]) {
		return NoteText{}
	}
	return NoteText(b[instructionHeader+noteHeader : noteSize])
}

// FlowChange is a flow that was added, changed or removed over another connection.
type FlowChange struct {
	Installed
	Removed bool
}
