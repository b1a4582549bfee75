package openflow

import (
	"encoding/binary"
	"fmt"
)

type controller struct{ id, length uint16 }

// Controller sends the first length bytes of the packet to the connections that listen
// with the id (Conn.Listen).
func Controller(id, length uint16) Action { return controller{id, length} }

func (a controller) String() string {
	return fmt.Sprintf("controller(max_len=%d,id=%d)", a.length, a.id)
}

func (a controller) wire(b []byte) ([]byte, error) {
	start := len(b)
	b = startNicira(b, niciraController)
	b = binary.BigEndian.AppendUint16(b, a.length)
	b = binary.BigEndian.AppendUint16(b, a.id)
	b = append(b, reasonAction, 0)
	return endAction(b, start), nil
}

type meteredController struct {
	controller
	meter uint32
}

// MeteredController is Controller within the rate of a meter. Above it the packet is not
// sent, and goes on as if there were no such action.
func MeteredController(id, length uint16, meter uint32) Action {
	return meteredController{controller{id, length}, meter}
}

func (a meteredController) String() string {
	return fmt.Sprintf("controller(max_len=%d,id=%d,meter_id=%d)", a.length, a.id, a.meter)
}

// Properties of niciraController2.
const (
	controllerLength = 0
	controllerID     = 1
	controllerMeter  = 5
)

func (a meteredController) wire(b []byte) ([]byte, error) {
	start := len(b)
	b = append(startNicira(b, niciraController2), 0, 0, 0, 0, 0, 0)
	short := func(property, value uint16) {
		b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, property), 8)
		b = append(binary.BigEndian.AppendUint16(b, value), 0, 0)
	}
	// In the order of ovs-vswitchd, and with its lengths, which count the padding: its dumps have these.
	short(controllerLength, a.length)
	short(controllerID, a.id)
	b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, controllerMeter), 8)
	b = binary.BigEndian.AppendUint32(b, a.meter)
	return endAction(b, start), nil
}

// reasonAction is OFPR_ACTION. It is ovs-vswitchd's default, which its dumps omit.
const reasonAction = 1
