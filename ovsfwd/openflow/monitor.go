package openflow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"antrea.io/libOpenflow/openflow15"
)

// ErrNoMonitor means that the switch does not report changes.
var ErrNoMonitor = errors.New("the switch does not report changed flows (Open vSwitch does from 2.16 on)")

// monitorID names the one monitor of a connection.
const monitorID = 1

// Monitor subscribes to all changes of flows from now on. Of changes made over this
// connection the switch sends only a few bytes a bundle, and notify does not get them.
// Monitor calls notify in the order of the changes until the connection ends. lost is
// true after the switch dropped reports because its buffer was full: the caller must
// then read all flows. A slow notify delays all other messages of the connection. A
// connection has one monitor. If the switch supports none, the error is ErrNoMonitor.
func (c *Conn) Monitor(ctx context.Context, notify func(changes []FlowChange, lost bool)) error {
	c.op.Lock()
	defer c.op.Unlock()
	c.notify.Store(&notify)
	xid := c.nextXID()
	err := c.exchange(ctx, func(w io.Writer) error {
		_, err := w.Write(monitorRequest(xid))
		return err
	}, func(m message) (bool, error) {
		if m.xid() != xid {
			return false, nil
		}
		if m.kind() == openflow15.Type_Error {
			return true, fmt.Errorf("%w: %s", ErrNoMonitor, reason(m))
		}
		return true, nil
	})
	if err != nil {
		c.notify.Store(nil)
	}
	return err
}

// monitorRequest asks for all changes of all tables, with instructions
// (OpenFlow 1.5.1, 7.3.5.18).
func monitorRequest(xid uint32) []byte {
	const flags = openflow15.FMF_ADD | openflow15.FMF_REMOVED | openflow15.FMF_MODIFY | openflow15.FMF_INSTRUCTIONS
	b := []byte{openflow15.VERSION, openflow15.Type_MultiPartRequest, 0, 0}
	b = binary.BigEndian.AppendUint32(b, xid)
	b = binary.BigEndian.AppendUint16(b, openflow15.MultipartType_FlowMonitor)
	b = append(b, 0, 0, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, monitorID)
	b = binary.BigEndian.AppendUint32(b, openflow15.P_ANY)
	b = binary.BigEndian.AppendUint32(b, openflow15.OFPG_ANY)
	b = binary.BigEndian.AppendUint16(b, flags)
	b = append(b, openflow15.OFPTT_ALL, openflow15.FMC_ADD)
	b = append(b, 0, openflow15.MatchType_OXM, 0, 4, 0, 0, 0, 0) // every match
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	return b
}

// isUpdate reports whether a message is a flow monitor's report.
func (m message) isUpdate() bool {
	return m.kind() == openflow15.Type_MultiPartReply && len(m.body()) >= multipartHeader &&
		binary.BigEndian.Uint16(m.body()) == openflow15.MultipartType_FlowMonitor
}

// updated passes the changes in a report to notify.
func (c *Conn) updated(m message) error {
	notify := c.notify.Load()
	if notify == nil {
		return nil
	}
	changes, lost, err := parseUpdates(m.body()[multipartHeader:])
	if err != nil {
		return fmt.Errorf("openflow monitor: %w", err)
	}
	if len(changes) > 0 || lost {
		(*notify)(changes, lost)
	}
	return nil
}

// updateFixed is the size of a full update without match and instructions
// (OpenFlow 1.5.1, 7.3.5.18.2).
const updateFixed = 24

func parseUpdates(b []byte) (changes []FlowChange, lost bool, err error) {
	for len(b) > 0 {
		if len(b) < 4 {
			return nil, false, errors.New("update too short")
		}
		size, event := int(binary.BigEndian.Uint16(b)), binary.BigEndian.Uint16(b[2:])
		if size < 4 || size > len(b) {
			return nil, false, fmt.Errorf("update of impossible length %d", size)
		}
		switch event {
		case openflow15.FME_INITIAL, openflow15.FME_ADDED, openflow15.FME_MODIFIED, openflow15.FME_REMOVED:
			f, err := parseUpdate(b[:size])
			if err != nil {
				return nil, false, err
			}
			changes = append(changes, FlowChange{Installed: f, Removed: event == openflow15.FME_REMOVED})
		case openflow15.FME_RESUMED:
			lost = true
		}
		b = b[size:]
	}
	return changes, lost, nil
}

func parseUpdate(b []byte) (Installed, error) {
	if len(b) < updateFixed {
		return Installed{}, errors.New("update too short")
	}
	e := flowEntry{table: b[4], priority: binary.BigEndian.Uint16(b[10:]), cookie: binary.BigEndian.Uint64(b[16:])}
	var err error
	if e.match, e.instructions, err = cut(b[updateFixed:]); err != nil {
		return Installed{}, fmt.Errorf("match: %w", err)
	}
	return e.installed()
}
