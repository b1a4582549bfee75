package openflow

import "encoding/binary"

// Types of actions (OpenFlow 1.5.1, 7.2.6).
const (
	actionOutput       = 0
	actionGroup        = 22
	actionDecNwTTL     = 24
	actionSetField     = 25
	actionCopyField    = 28
	actionMeter        = 29
	actionExperimenter = 0xffff
)

// Nicira's actions (OVS, lib/ofp-actions.c).
const (
	niciraVendor      = 0x2320
	niciraNote        = 8
	niciraResubmit    = 14
	niciraOutputReg   = 15
	niciraController  = 20
	niciraConjunction = 34
	niciraCT          = 35
	niciraNAT         = 36
	niciraController2 = 37
	niciraCTClear     = 43
	niciraLearn2      = 45
)

// niciraSetControllerID is the subtype of a message (OVS, nicira-ext.h).
const niciraSetControllerID = 20

// startAction appends an action's type and room for its length.
func startAction(b []byte, kind uint16) []byte {
	return append(binary.BigEndian.AppendUint16(b, kind), 0, 0)
}

func startNicira(b []byte, subtype uint16) []byte {
	b = startAction(b, actionExperimenter)
	b = binary.BigEndian.AppendUint32(b, niciraVendor)
	return binary.BigEndian.AppendUint16(b, subtype)
}

// endAction pads the action that begins at start to a multiple of eight bytes
// and sets its length.
func endAction(b []byte, start int) []byte {
	b = pad(b, start)
	binary.BigEndian.PutUint16(b[start+2:], uint16(len(b)-start))
	return b
}

func pad(b []byte, start int) []byte {
	for (len(b)-start)%8 != 0 {
		b = append(b, 0)
	}
	return b
}
