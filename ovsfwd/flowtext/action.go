package flowtext

import (
	"net/netip"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// Action is one action of a flow. The set of actions is closed: any other action
// makes its flow Foreign.
type Action interface {
	isAction()
	// String writes the action as ovs-ofctl does.
	String() string
}

// SetField gives the bits of Mask in a field the Value ("set_field", "load").
type SetField struct {
	Field       openflow.Field
	Value, Mask Word
}

// CopyField copies Bits bits of one field, from bit FromBit on, over those of
// another from ToBit on ("move").
type CopyField struct {
	From, To             openflow.Field
	FromBit, ToBit, Bits int
}

// Output sends the packet out of the port of that number.
type Output struct{ Port uint32 }

// OutputField sends the packet to the port number in a register.
type OutputField struct{ Field openflow.Field }

// OutputNormal hands the packet to ordinary MAC learning. OutputInPort sends it back to
// its input port.
type (
	OutputNormal struct{}
	OutputInPort struct{}
)

// CT sends the packet through connection tracking. Where Table is not
// openflow.NoTable, a copy with its state known goes on there; the actions behind
// see the packet as it was.
type CT struct {
	Commit, Force bool
	// NAT translates the packet as its connection is translated.
	NAT bool
	// Source is the source that packets of a new connection get.
	Source openflow.NATSource
	// Destination is the destination that packets of a new connection get.
	Destination netip.AddrPort
	Zone        uint16
	Table       uint8
	// Exec sets mark and label of the connection that is committed.
	Exec []SetField
}

// CTClear makes the packet untracked again, DecTTL decrements its time to live,
// and drops it if that was its last hop.
type (
	CTClear struct{}
	DecTTL  struct{}
)

// Conjunction says that the packet matches dimension K (from 1) of N of a
// conjunction.
type Conjunction struct {
	ID   uint32
	K, N uint8
}

// Resubmit looks up a table and comes back for the actions behind, GotoTable
// goes on there for good.
type (
	Resubmit  struct{ Table uint8 }
	GotoTable struct{ Table uint8 }
)

// Group hands the packet to a group, whose buckets are not in the listing of flows.
type Group struct{ ID uint32 }

// Learn installs a flow made of the packet, unless it is there already.
type Learn struct {
	Table       uint8
	Priority    uint16
	IdleTimeout uint16
	Cookie      uint64
	// Limit bounds the flows with the cookie in the table.
	Limit uint32
	// Match are the fixed matches of the learned flow, in the order of the fields, Copies the
	// fields that it copies from the packet, Sets its actions.
	Match  []Term
	Copies []openflow.FieldCopy
	Sets   []openflow.RegisterBits
}

// Meter drops packets above the rate of that meter. Controller sends the first MaxLen
// bytes to the connection with that ID, within the rate of Meter if that is not zero. Note does nothing: its text, hexadecimal bytes,
// is for the reader of the flow.
type (
	Meter      struct{ ID uint32 }
	Controller struct {
		MaxLen, ID uint16
		Meter      uint32
	}
	Note struct{ Text string }
)

func (SetField) isAction()     {}
func (CopyField) isAction()    {}
func (Output) isAction()       {}
func (OutputField) isAction()  {}
func (OutputNormal) isAction() {}
func (OutputInPort) isAction() {}
func (CT) isAction()           {}
func (CTClear) isAction()      {}
func (DecTTL) isAction()       {}
func (Conjunction) isAction()  {}
func (Resubmit) isAction()     {}
func (GotoTable) isAction()    {}
func (Group) isAction()        {}
func (Learn) isAction()        {}
func (Meter) isAction()        {}
func (Controller) isAction()   {}
func (Note) isAction()         {}
