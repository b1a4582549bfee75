package openflow

import (
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
	// wire encodes the action; nil for a jump, which is an instruction.
	wire() (openflow15.Action, error)
}

type setField struct{ term }

// SetBits sets the bits of a register that mask selects.
func SetBits(register Field, value, mask uint32) Action {
	return setField{term{register, uint32Bytes(value), uint32Bytes(mask)}}
}

// SetRegister sets a whole register.
func SetRegister(register Field, value uint32) Action {
	return setField{term{register, uint32Bytes(value), nil}}
}

// SetMAC sets an Ethernet address in a field of that kind.
func SetMAC(f Field, a net.HardwareAddr) Action { return setField{term{f, a, nil}} }

// SetAddr sets an IP address in a field of that kind.
func SetAddr(f Field, a netip.Addr) Action { return setField{term{f, a.AsSlice(), nil}} }

// SetARPOperation sets the ARP operation: 1 request, 2 reply.
func SetARPOperation(op uint16) Action { return setField{term{ARPOp, uint16Bytes(op), nil}} }

func (a setField) String() string {
	return "set_field:" + a.valueString() + "->" + a.field.spec().set
}

func (a setField) wire() (openflow15.Action, error) {
	f, err := a.term.wire()
	if err != nil {
		return nil, err
	}
	return openflow15.NewActionSetField(*f), nil
}

type copyField struct{ from, to Field }

// Copy copies a whole field to another one of the same width.
func Copy(from, to Field) Action { return copyField{from, to} }

func (a copyField) String() string { return "move:" + a.from.nxm() + "[]->" + a.to.nxm() + "[]" }

func (a copyField) wire() (openflow15.Action, error) {
	from, to := a.from.spec(), a.to.spec()
	if from.width != to.width {
		return nil, fmt.Errorf("copy %s to %s: widths differ", from.match, to.match)
	}
	src, err := openflow15.FindOxmIdByName(from.oxm, false)
	if err != nil {
		return nil, fmt.Errorf("copy from %s: %w", from.match, err)
	}
	dst, err := openflow15.FindOxmIdByName(to.oxm, false)
	if err != nil {
		return nil, fmt.Errorf("copy to %s: %w", to.match, err)
	}
	return openflow15.NewActionCopyField(uint16(from.width*8), 0, 0, *src, *dst), nil
}

type decTTL struct{}

// DecTTL decrements the IPv4 TTL or IPv6 hop limit; a packet whose last hop
// this was is dropped.
func DecTTL() Action { return decTTL{} }

func (decTTL) String() string                   { return "dec_ttl" }
func (decTTL) wire() (openflow15.Action, error) { return openflow15.NewActionDecNwTtl(), nil }

type output uint32

// OutputNormal hands the packet to ordinary MAC learning.
func OutputNormal() Action { return output(openflow15.P_NORMAL) }

// OutputInPort sends the packet back where it came from, which an ordinary
// output does not.
func OutputInPort() Action { return output(openflow15.P_IN_PORT) }

func (a output) String() string {
	switch a {
	case openflow15.P_NORMAL:
		return "NORMAL"
	case openflow15.P_IN_PORT:
		return "IN_PORT"
	}
	return fmt.Sprintf("output:%d", uint32(a))
}

func (a output) wire() (openflow15.Action, error) {
	return openflow15.NewActionOutput(uint32(a)), nil
}

type outputRegister Field

// OutputRegister sends the packet to the port that a register names.
func OutputRegister(register Field) Action { return outputRegister(register) }

func (a outputRegister) String() string { return "output:" + Field(a).spec().oxm + "[]" }

func (a outputRegister) wire() (openflow15.Action, error) {
	s := Field(a).spec()
	f, err := openflow15.FindFieldHeaderByName(s.oxm, false)
	if err != nil {
		return nil, fmt.Errorf("output to %s: %w", s.match, err)
	}
	// Bits 0..31: offset 0 in the upper ten bits, count minus one below.
	return openflow15.NewOutputFromField(f, uint16(s.width*8-1)), nil
}

type gotoTable uint8

// GotoTable continues in a later table. It must be the last action.
func GotoTable(table uint8) Action { return gotoTable(table) }

func (a gotoTable) String() string                   { return fmt.Sprintf("goto_table:%d", uint8(a)) }
func (a gotoTable) wire() (openflow15.Action, error) { return nil, nil }
