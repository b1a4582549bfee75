package openflow

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
)

// CTFlags are bits of a packet's connection tracking state.
type CTFlags uint32

// The connection tracking states.
const (
	CTNew CTFlags = 1 << iota
	CTEst
	CTRel
	CTRpl
	CTInv
	CTTrk
)

// CTState matches packets whose connection tracking state has the flags set
// and lacks the flags clear.
func (m Match) CTState(set, clear CTFlags) Match {
	return m.with(CTState, uint32Bytes(uint32(set)), uint32Bytes(uint32(set|clear)))
}

// CTMark matches the bits of the connection's mark that mask selects.
func (m Match) CTMark(value, mask uint32) Match { return m.Bits(CTMark, value, mask) }

// Label is a connection's label: 128 bits, of which Lo has bits 0 to 63.
type Label struct{ Hi, Lo uint64 }

func (l Label) bytes() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, l.Hi), l.Lo)
}

// CTLabel matches the bits of the connection's label that mask selects.
func (m Match) CTLabel(value, mask Label) Match {
	return m.with(CTLabel, value.bytes(), mask.bytes())
}

// SetCTMark sets the connection's mark; for CTSpec.Exec only.
func SetCTMark(value uint32) Action { return SetRegister(CTMark, value) }

// SetCTLabelBits sets the bits of the connection's label that mask selects; for
// CTSpec.Exec only.
func SetCTLabelBits(value, mask Label) Action {
	return setField{newTerm(CTLabel, value.bytes(), mask.bytes())}
}

// NoTable as a CTSpec's Table: the packet does not come back.
const NoTable = 255

// CTSpec says how a packet goes through connection tracking.
type CTSpec struct {
	// Commit stores the connection.
	Commit bool
	// Force, with Commit, forgets a connection that the other side has begun; the
	// packet is then the first of a new one, if it can be.
	Force bool
	Zone  uint16
	// NAT translates the packet as its connection is translated. Without it, the packet
	// stays as it is, and is found all the same.
	NAT bool
	// Source, with Commit, is the source that a new connection's packets get. It implies
	// NAT.
	Source NATSource
	// Destination, with Commit, is the destination that a new connection's packets get. It implies NAT, and excludes Source.
	Destination netip.AddrPort
	// Table is where a copy of the packet continues, with its state known, or
	// NoTable. The actions after CT see the packet as it was.
	Table uint8
	// Exec sets the connection's mark and label. It needs Commit.
	Exec []Action
}

// NATSource is an address, with the ports from the first to the last one; none if
// Address is invalid. Without ports, the switch keeps the packet's own port if it can.
type NATSource struct {
	Address     netip.Addr
	First, Last uint16
}

// String writes "nat(src=192.0.2.1:10000-20000)", and "nat(src=[2001:db8::1]:10000-20000)".
func (s NATSource) String() string {
	if s.Last == 0 {
		return fmt.Sprintf("nat(src=%s)", s.Address)
	}
	first := netip.AddrPortFrom(s.Address, s.First)
	if s.First == s.Last {
		return fmt.Sprintf("nat(src=%s)", first)
	}
	return fmt.Sprintf("nat(src=%s-%d)", first, s.Last)
}

type ct struct{ CTSpec }

// CT sends the packet through connection tracking.
func CT(s CTSpec) Action { return ct{s} }

func (a ct) String() string {
	var words []string
	if a.Commit {
		words = append(words, "commit")
	}
	if a.Force {
		words = append(words, "force")
	}
	if a.Table != NoTable {
		words = append(words, fmt.Sprintf("table=%d", a.Table))
	}
	if a.Zone != 0 { // ovs-ofctl leaves out zone 0
		words = append(words, fmt.Sprintf("zone=%d", a.Zone))
	}
	switch {
	case a.Source.Address.IsValid():
		words = append(words, a.Source.String())
	case a.Destination.IsValid():
		words = append(words, fmt.Sprintf("nat(dst=%s)", a.Destination))
	case a.NAT:
		words = append(words, "nat")
	}
	if len(a.Exec) > 0 {
		exec := make([]string, len(a.Exec))
		for i, e := range a.Exec {
			exec[i] = e.String()
		}
		words = append(words, "exec("+strings.Join(exec, ",")+")")
	}
	return "ct(" + strings.Join(words, ",") + ")"
}

// Flags of the action: NX_CT_F_COMMIT and NX_CT_F_FORCE.
const (
	ctCommit = 1
	ctForce  = 2
)

func (a ct) wire(b []byte) ([]byte, error) {
	start, flags := len(b), uint16(0)
	if a.Commit {
		flags = ctCommit
	}
	if a.Force {
		flags |= ctForce
	}
	b = startNicira(b, niciraCT)
	b = binary.BigEndian.AppendUint16(b, flags)
	b = append(b, 0, 0, 0, 0) // the zone is a number, not a field
	b = binary.BigEndian.AppendUint16(b, a.Zone)
	b = append(b, a.Table, 0, 0, 0)
	b = append(b, 0, 0) // no application gateway
	switch {
	case a.Source.Address.IsValid():
		var err error
		if b, err = a.Source.wire(b); err != nil {
			return nil, err
		}
	case a.Destination.IsValid():
		b = destinationWire(b, a.Destination)
	case a.NAT:
		at := len(b)
		b = endAction(append(startNicira(b, niciraNAT), make([]byte, natBytes)...), at)
	}
	for _, e := range a.Exec {
		var err error
		if b, err = e.wire(b); err != nil {
			return nil, err
		}
	}
	return endAction(b, start), nil
}

// natBytes is the length of struct nx_action_nat behind its subtype: padding, no flags,
// no range.
const natBytes = 6

// The flags of struct nx_action_nat for a translated source or destination, and the bits that say which
// parts of the range follow (openvswitch/nicira-ext.h).
const (
	natSource      = 1
	natDestination = 2
	natIPv4Min     = 1 << 0
	natIPv6Min     = 1 << 2
	natPortMin     = 1 << 4
	natPortMax     = 1 << 5
	natReserved    = 2
)

func (s NATSource) wire(b []byte) ([]byte, error) {
	if s.First > s.Last {
		return nil, fmt.Errorf("%s: want ports in order", s)
	}
	start := len(b)
	parts := uint16(natIPv4Min)
	if s.Address.Is6() {
		parts = natIPv6Min
	}
	if s.Last != 0 {
		parts |= natPortMin | natPortMax
	}
	b = append(startNicira(b, niciraNAT), make([]byte, natReserved)...)
	b = binary.BigEndian.AppendUint16(b, natSource)
	b = binary.BigEndian.AppendUint16(b, parts)
	b = append(b, s.Address.AsSlice()...)
	if s.Last != 0 {
		b = binary.BigEndian.AppendUint16(b, s.First)
		b = binary.BigEndian.AppendUint16(b, s.Last)
	}
	return endAction(b, start), nil
}

func destinationWire(b []byte, to netip.AddrPort) []byte {
	start := len(b)
	parts := uint16(natIPv4Min | natPortMin)
	if to.Addr().Is6() {
		parts = natIPv6Min | natPortMin
	}
	b = append(startNicira(b, niciraNAT), make([]byte, natReserved)...)
	b = binary.BigEndian.AppendUint16(b, natDestination)
	b = binary.BigEndian.AppendUint16(b, parts)
	b = append(b, to.Addr().AsSlice()...)
	return endAction(binary.BigEndian.AppendUint16(b, to.Port()), start)
}

type ctClear struct{}

// CTClear makes the packet untracked again.
func CTClear() Action { return ctClear{} }

func (ctClear) String() string { return "ct_clear" }

func (ctClear) wire(b []byte) ([]byte, error) {
	return endAction(startNicira(b, niciraCTClear), len(b)), nil
}

type conjunction struct {
	id   uint32
	k, n uint8
}

// Conjunction says that the packet matches dimension k (from 1) of n of a
// conjunction. A flow with such actions may have no others.
func Conjunction(id uint32, k, n uint8) Action { return conjunction{id, k, n} }

func (a conjunction) String() string { return fmt.Sprintf("conjunction(%d,%d/%d)", a.id, a.k, a.n) }

func (a conjunction) wire(b []byte) ([]byte, error) {
	if a.k < 1 || a.k > a.n {
		return nil, fmt.Errorf("dimension %d of %d", a.k, a.n)
	}
	start := len(b)
	b = append(startNicira(b, niciraConjunction), a.k-1, a.n)
	b = binary.BigEndian.AppendUint32(b, a.id)
	return endAction(b, start), nil
}

type resubmit uint8

// Resubmit goes through a table, which may be an earlier one, and comes back
// for the actions that follow.
func Resubmit(table uint8) Action { return resubmit(table) }

func (a resubmit) String() string { return fmt.Sprintf("resubmit(,%d)", uint8(a)) }

// resubmitSamePort is OpenFlow 1.0's number of the port the packet came by.
const resubmitSamePort = 0xfff8

func (a resubmit) wire(b []byte) ([]byte, error) {
	start := len(b)
	b = startNicira(b, niciraResubmit)
	b = binary.BigEndian.AppendUint16(b, resubmitSamePort)
	return endAction(append(b, byte(a)), start), nil
}
