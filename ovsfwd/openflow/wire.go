package openflow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"antrea.io/libOpenflow/openflow15"
)

// wire appends the change as an OpenFlow message (OpenFlow 1.5.1, 7.3.4.2).
func (m FlowMod) wire(b []byte, xid uint32) ([]byte, error) {
	command, mask, match := uint8(openflow15.FC_ADD), uint64(0), m.Flow.Match
	switch m.Command {
	case Add:
	case DeleteCookie:
		command, mask, match = openflow15.FC_DELETE, math.MaxUint64, Any()
	case DeleteMatching:
		command, mask = openflow15.FC_DELETE, ownerBits
	case EnsureGroup, DeleteGroup:
		return m.Group.wire(b, xid, m.Command)
	default:
		return nil, fmt.Errorf("unknown %s", m)
	}
	start := len(b)
	b = append(b, openflow15.VERSION, openflow15.Type_FlowMod, 0, 0)
	b = binary.BigEndian.AppendUint32(b, xid)
	b = binary.BigEndian.AppendUint64(b, m.Cookie)
	b = binary.BigEndian.AppendUint64(b, mask)
	b = append(b, m.Flow.Table, command)
	b = append(b, 0, 0) // no idle timeout
	b = binary.BigEndian.AppendUint16(b, m.HardTimeout)
	b = binary.BigEndian.AppendUint16(b, m.Flow.Priority)
	b = binary.BigEndian.AppendUint32(b, math.MaxUint32) // no buffered packet
	b = binary.BigEndian.AppendUint32(b, openflow15.P_ANY)
	b = binary.BigEndian.AppendUint32(b, openflow15.OFPG_ANY)
	b = append(b, 0, 0, 0, 0) // no flags, no importance
	b, err := appendMatch(b, match)
	if err != nil {
		return nil, err
	}
	if m.Command == Add {
		if b, err = appendInstructions(b, m.Flow.Actions); err != nil {
			return nil, err
		}
	}
	// bundle.encode refuses a message that is too long.
	binary.BigEndian.PutUint16(b[start+2:], uint16(len(b)-start))
	return b, nil
}

// appendMatch appends a match: type, length without padding, fields, padding.
func appendMatch(b []byte, m Match) ([]byte, error) {
	start := len(b)
	b = append(b, 0, openflow15.MatchType_OXM, 0, 0)
	b, err := m.wire(b)
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint16(b[start+2:], uint16(len(b)-start))
	return pad(b, start), nil
}

// appendInstructions splits actions into the two instructions that carry them.
func appendInstructions(b []byte, actions []Action) ([]byte, error) {
	start := len(b)
	b = append(b, 0, openflow15.InstrType_APPLY_ACTIONS, 0, 0, 0, 0, 0, 0)
	next, jumps := gotoTable(0), false
	for _, a := range actions {
		if jumps {
			return nil, errors.New("goto_table is not the last action")
		}
		if next, jumps = a.(gotoTable); jumps {
			continue
		}
		var err error
		if b, err = a.wire(b); err != nil {
			return nil, fmt.Errorf("action %s: %w", a, err)
		}
	}
	size := len(b) - start
	if size > math.MaxUint16 {
		return nil, fmt.Errorf("%d bytes of actions, more than a flow holds", size)
	}
	binary.BigEndian.PutUint16(b[start+2:], uint16(size))
	if size == 8 {
		b = b[:start]
	}
	if jumps {
		b = append(b, 0, openflow15.InstrType_GOTO_TABLE, 0, 8, byte(next), 0, 0, 0)
	}
	return b, nil
}
