package pipeline

import "github.com/felixlike/felixlike/ovsfwd/openflow"

// The owners of flows, in the upper 16 bits of their cookies.
const (
	// Owner is that of forwarding.
	Owner = 0xf11c
	// PolicyOwner is that of policy, where the switch judges.
	PolicyOwner = 0xf11d
	// TouchOwner is that of a flow that only comes and goes to make the switch revalidate its cached flows,
	// and of the last one (Silence).
	TouchOwner = 0xf11f
)

// Version goes into every cookie. It changes when the meaning of a table or
// register does, so that flows of both releases never mix.
const Version = 2

// Zone is the connection tracking zone of the full pipeline.
const Zone = 65520

// GatewayMark is the mark of connections that the gateway port began.
const GatewayMark uint32 = 0x20

// AllowedLabel is the bit of a connection's label that says that both ends'
// policy let it through.
func AllowedLabel() openflow.Label { return openflow.Label{Hi: 1} }

// The bits of reg0.
const (
	sourceMask   uint32 = 0xffff
	sourceTunnel uint32 = 0
	sourceGW     uint32 = 1
	sourcePod    uint32 = 2
	outputKnown  uint32 = 1 << 16
	macRewrite   uint32 = 1 << 19
	// Denied says that a policy table has denied the packet; reg3 says by which
	// rule.
	Denied uint32 = 1 << 20
	// Asked says that the isolation of the destination's namespace has handed the packet on to the tiers. The same bit of reg4
	// says so of the EgressNetworkPolicy of the source's.
	Asked      uint32 = 1 << 18
	hairpin    uint32 = 1 << 21
	neverAllow uint32 = 1 << 22
	judged     uint32 = 1 << 26
	// switched marks packets of established connections that skip the host.
	switched uint32 = 1 << 27
)

// FromGateway reports whether reg0 is that of a packet from the gateway port.
func FromGateway(reg0 uint32) bool { return reg0&sourceMask == sourceGW }

const (
	priorityDefault uint16 = 0
	// priorityStranger counts, above the default flow, the packets of the tunnel that no node's flow takes.
	priorityStranger uint16 = 1
	priorityLow      uint16 = 190
	priorityNormal   uint16 = 200
	priorityHigh     uint16 = 210
	// Neighbour discovery: the allowing flows stand above the dropping ones.
	priorityND        uint16 = 220
	priorityMalformed uint16 = 230
)
