package openflow

import (
	"encoding/binary"
	"fmt"

	"antrea.io/libOpenflow/openflow15"
)

// HashGroup is a group of the kind select: a packet takes one of the buckets, all packets with equal addresses and ports the same one. The datapath
// computes the hash, so it needs no cached flow for each connection. Open vSwitch has 256 values for a group. With as many buckets, or
// a divisor of it, all buckets have equal shares.
type HashGroup struct {
	// ID is the group's number in the bridge. Groups of the same number have the same buckets.
	ID uint32
	// Buckets are the actions of each bucket.
	Buckets [][]Action
}

type hashGroup struct{ HashGroup }

// Hash hands the packet to the group. A FlowTable sends the group before the flow, in the same bundle, if the
// switch does not have it.
func Hash(g HashGroup) Action { return hashGroup{g} }

func (a hashGroup) String() string { return fmt.Sprintf("group:%d", a.ID) }

func (a hashGroup) wire(b []byte) ([]byte, error) {
	start := len(b)
	return endAction(binary.BigEndian.AppendUint32(startAction(b, actionGroup), a.ID), start), nil
}

// groupsOf returns the groups that a flow uses.
func groupsOf(f Flow) (all []HashGroup) {
	for _, a := range f.Actions {
		if g, ok := a.(hashGroup); ok {
			all = append(all, g.HashGroup)
		}
	}
	return all
}

// The parts of a group modification (OpenFlow 1.5.1, 7.3.4.3; OVS, nicira-ext.h and openflow-1.5.h).
const (
	groupAddOrModify    uint16 = 0x8000
	allBuckets          uint32 = 0xffffffff
	propertyWeight      uint16 = 0
	propertyVendor      uint16 = 0xffff
	vendorNetronome     uint32 = 0x154d
	selectionMethod     uint32 = 1
	selectionMethodSize        = 16
	groupModFixed              = 24
)

// wire appends the message that adds, replaces or deletes the group.
func (g HashGroup) wire(b []byte, xid uint32, command Command) ([]byte, error) {
	start := len(b)
	b = append(b, openflow15.VERSION, openflow15.Type_GroupMod, 0, 0)
	b = binary.BigEndian.AppendUint32(b, xid)
	if command == DeleteGroup {
		b = binary.BigEndian.AppendUint16(b, openflow15.OFPGC_DELETE)
	} else {
		b = binary.BigEndian.AppendUint16(b, groupAddOrModify)
	}
	b = append(b, openflow15.GT_SELECT, 0)
	b = binary.BigEndian.AppendUint32(b, g.ID)
	size := len(b)
	b = append(b, 0, 0, 0, 0) // their length, padding
	b = binary.BigEndian.AppendUint32(b, allBuckets)
	if command == EnsureGroup {
		first := len(b)
		for i, actions := range g.Buckets {
			var err error
			if b, err = bucketWire(b, uint32(i), actions); err != nil {
				return nil, err
			}
		}
		binary.BigEndian.PutUint16(b[size:], uint16(len(b)-first))
		property := len(b)
		b = binary.BigEndian.AppendUint16(b, propertyVendor)
		b = append(b, 0, 0)
		b = binary.BigEndian.AppendUint32(b, vendorNetronome)
		b = binary.BigEndian.AppendUint32(b, selectionMethod)
		b = append(b, 0, 0, 0, 0)
		b = append(b, make([]byte, selectionMethodSize)...)
		copy(b[len(b)-selectionMethodSize:], "dp_hash")
		b = append(b, make([]byte, 8)...) // the hash of the datapath for layer 4, with basis 0
		b = endAction(b, property)
	}
	binary.BigEndian.PutUint16(b[start+2:], uint16(len(b)-start))
	return b, nil
}

func bucketWire(b []byte, id uint32, actions []Action) ([]byte, error) {
	start := len(b)
	b = append(b, 0, 0, 0, 0) // lengths
	b = binary.BigEndian.AppendUint32(b, id)
	first := len(b)
	for _, a := range actions {
		var err error
		if b, err = a.wire(b); err != nil {
			return nil, fmt.Errorf("action %s: %w", a, err)
		}
	}
	binary.BigEndian.PutUint16(b[start+2:], uint16(len(b)-first))
	weight := len(b)
	b = binary.BigEndian.AppendUint16(b, propertyWeight)
	b = append(b, 0, 0, 0, 1) // its length, and a weight of one
	b = endAction(b, weight)
	binary.BigEndian.PutUint16(b[start:], uint16(len(b)-start))
	return b, nil
}
