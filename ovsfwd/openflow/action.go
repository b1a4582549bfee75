package openflow

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"antrea.io/libOpenflow/openflow15"
)

// Action is one thing that a flow does with a packet.
//
// OpenFlow 1.5 has no NX reg_load, reg_move or dec_ttl (ovs-vswitchd answers
// BAD_VENDOR_TYPE); set_field, copy_field and dec_nw_ttl take their places.
type Action interface {
	fmt.Stringer
	// wire appends the encoded action; nothing for a jump, which is an
	// instruction.
	wire(b []byte) ([]byte, error)
}

type setField struct{ term }

// SetBits sets the bits of a register that mask selects.
func SetBits(register Field, value, mask uint32) Action {
	return setField{newTerm(register, uint32Bytes(value), uint32Bytes(mask))}
}

// SetRegister sets a whole register.
func SetRegister(register Field, value uint32) Action {
	return setField{term{register, uint32Bytes(value), nil}}
}

// Set sets the bits of any field that mask selects; all of them if it is nil. Both have the
// field's width.
func Set(f Field, value, mask []byte) Action { return setField{newTerm(f, value, mask)} }

// SetMAC sets an Ethernet address in a field of that kind.
func SetMAC(f Field, a net.HardwareAddr) Action { return setField{term{f, a, nil}} }

// SetAddr sets an IP address in a field of that kind.
func SetAddr(f Field, a netip.Addr) Action { return setField{term{f, a.AsSlice(), nil}} }

// SetARPOperation sets the ARP operation: 1 request, 2 reply.
func SetARPOperation(op uint16) Action { return setField{term{ARPOp, uint16Bytes(op), nil}} }

func (a setField) String() string {
	return "set_field:" + a.valueString() + "->" + a.field.spec().set
}

func (a setField) wire(b []byte) ([]byte, error) {
	start := len(b)
	b, err := a.term.wire(startAction(b, actionSetField))
	if err != nil {
		return nil, err
	}
	return endAction(b, start), nil
}

type copyField struct {
	from, to Field
	bits     int
}

// Copy copies a whole field to another one of the same width.
func Copy(from, to Field) Action { return copyField{from, to, max(from.Bits(), to.Bits())} }

// CopyLow copies the lowest bits of a field over the lowest bits of another one.
func CopyLow(from, to Field, bits int) Action { return copyField{from, to, bits} }

func (a copyField) String() string {
	return "move:" + a.from.BitRange(0, a.bits) + "->" + a.to.BitRange(0, a.bits)
}

func (a copyField) wire(b []byte) ([]byte, error) {
	from, to := a.from.spec(), a.to.spec()
	if a.bits < 1 || a.bits > min(a.from.Bits(), a.to.Bits()) {
		return nil, fmt.Errorf("copy %d bits of %s to %s: a field has fewer", a.bits, from.match, to.match)
	}
	start := len(b)
	b = startAction(b, actionCopyField)
	b = binary.BigEndian.AppendUint16(b, uint16(a.bits))
	b = append(b, 0, 0, 0, 0, 0, 0) // from bit 0, to bit 0, padding
	b = append(append(b, from.header(false)...), to.header(false)...)
	return endAction(b, start), nil
}

type decTTL struct{}

// DecTTL decrements the IPv4 TTL or IPv6 hop limit. The switch drops a packet
// whose TTL ends.
func DecTTL() Action { return decTTL{} }

func (decTTL) String() string { return "dec_ttl" }

func (decTTL) wire(b []byte) ([]byte, error) {
	return endAction(startAction(b, actionDecNwTTL), len(b)), nil
}

type output uint32

// Output sends the packet out of the port of that number.
func Output(port uint32) Action { return output(port) }

// LocalPort is the number of the bridge's own port.
const LocalPort uint32 = openflow15.P_LOCAL

// OutputNormal hands the packet to ordinary MAC learning.
func OutputNormal() Action { return output(openflow15.P_NORMAL) }

// OutputInPort sends the packet out of its input port, which an ordinary output
// does not.
func OutputInPort() Action { return output(openflow15.P_IN_PORT) }

func (a output) String() string {
	switch a {
	case openflow15.P_NORMAL:
		return "NORMAL"
	case openflow15.P_IN_PORT:
		return "IN_PORT"
	case openflow15.P_LOCAL:
		return "LOCAL"
	}
	return fmt.Sprintf("output:%d", uint32(a))
}

func (a output) wire(b []byte) ([]byte, error) {
	start := len(b)
	b = startAction(b, actionOutput)
	b = binary.BigEndian.AppendUint32(b, uint32(a))
	b = append(b, 0, 0) // nothing for the controller
	return endAction(b, start), nil
}

type outputRegister Field

// OutputRegister sends the packet to the port that a register names.
func OutputRegister(register Field) Action { return outputRegister(register) }

func (a outputRegister) String() string { return "output:" + Field(a).BitRange(0, Field(a).Bits()) }

func (a outputRegister) wire(b []byte) ([]byte, error) {
	s := Field(a).spec()
	if s.width == 0 {
		return nil, fmt.Errorf("output to %s: unknown field", s.match)
	}
	start := len(b)
	b = startNicira(b, niciraOutputReg)
	// Bits 0..31: offset 0 in the upper ten bits, count minus one below.
	b = binary.BigEndian.AppendUint16(b, uint16(s.width*8-1))
	b = append(b, s.header(false)...)
	b = append(b, 0, 0) // nothing for the controller
	return endAction(b, start), nil
}

type gotoTable uint8

// GotoTable continues in a later table. It must be the last action.
func GotoTable(table uint8) Action { return gotoTable(table) }

func (a gotoTable) String() string                { return fmt.Sprintf("goto_table:%d", uint8(a)) }
func (a gotoTable) wire(b []byte) ([]byte, error) { return b, nil }
