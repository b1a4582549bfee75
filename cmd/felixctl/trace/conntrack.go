package trace

import (
	"net/netip"

	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/rules"
)

// tuple identifies a connection.
type tuple struct {
	source, destination netip.Addr
	protocol            uint64
	from, to            uint64
}

func (t tuple) reversed() tuple {
	return tuple{t.destination, t.source, t.protocol, t.to, t.from}
}

func tupleOf(f *fields) tuple {
	t := tuple{source: f.source(), destination: f.destination(), protocol: f[openflow.IPProto].Lo}
	for _, ports := range [][2]openflow.Field{
		{openflow.TCPSrc, openflow.TCPDst}, {openflow.UDPSrc, openflow.UDPDst}, {openflow.SCTPSrc, openflow.SCTPDst},
	} {
		t.from, t.to = t.from|f[ports[0]].Lo, t.to|f[ports[1]].Lo
	}
	return t
}

// known is a connection of the switch.
type known struct {
	mark, label flowtext.Word
	// established is true if the connection existed before the packet came.
	established bool
}

// tracker is the switch's connection tracking in one zone, as far as one packet
// goes.
type tracker struct {
	connections map[tuple]*known
	// related is the connection that the packet is an error about, invalid says that
	// it fits none.
	related *known
	invalid bool
	// current is the packet's connection, and of is the tuple that it was found by.
	current *known
	of      tuple
	state   uint64
}

// newTracker returns a tracker in the state that the packet's Conn describes.
// begunByGateway is true if the first packet of the connection came by the gateway port.
func newTracker(p Packet, begunByGateway bool) *tracker {
	t := &tracker{connections: map[tuple]*known{}}
	allowed := pipeline.AllowedLabel()
	k := &known{established: true, label: flowtext.Word{Hi: allowed.Hi, Lo: allowed.Lo}}
	if begunByGateway {
		k.mark = flowtext.Word{Lo: uint64(pipeline.GatewayMark)}
	}
	of := tuple{p.Source, p.Destination, uint64(p.Protocol), uint64(p.SourcePort), uint64(p.Port)}
	if p.Protocol.IsICMP() {
		of.to = 0 // no port, but the type and the code
	}
	switch p.Conn {
	case Allowed, Reopened:
		t.connections[of] = k
	case Answer:
		t.connections[of.reversed()] = k
	case Unjudged:
		k.label = flowtext.Word{}
		t.connections[of] = k
	case Related:
		t.related = k
	case Invalid:
		t.invalid = true
	}
	return t
}

// track applies a ct action to a packet: it sets the packet's ct_state, and with
// commit it stores and marks the connection.
func (t *tracker) track(a flowtext.CT, f *fields) {
	if of := tupleOf(f); t.current == nil || t.of != of || f[openflow.CTState].IsZero() {
		t.find(of)
	}
	f[openflow.CTState] = flowtext.Word{Lo: t.state}
	f[openflow.CTZone] = flowtext.Word{Lo: uint64(a.Zone)}
	if a.Commit && t.state&uint64(openflow.CTInv) == 0 {
		if t.current == nil {
			t.current = &known{}
		}
		t.connections[t.of] = t.current
		var set fields
		set[openflow.CTMark], set[openflow.CTLabel] = t.current.mark, t.current.label
		for _, e := range a.Exec {
			set.set(e)
		}
		t.current.mark, t.current.label = set[openflow.CTMark], set[openflow.CTLabel]
	}
	f[openflow.CTMark], f[openflow.CTLabel] = flowtext.Word{}, flowtext.Word{}
	if t.current != nil {
		f[openflow.CTMark], f[openflow.CTLabel] = t.current.mark, t.current.label
		if a.Zone == 0 { // that of the host
			f[openflow.CTMark], f[openflow.CTLabel] = t.current.hostMark(), flowtext.Word{}
		}
	}
}

// hostMark is the mark of the connection in the host's zone.
func (k *known) hostMark() flowtext.Word {
	if k.label.Hi&pipeline.AllowedLabel().Hi == 0 {
		return flowtext.Word{}
	}
	return flowtext.Word{Lo: uint64(rules.MarkAllowed | rules.MarkSettled | rules.MarkUntranslated)}
}

// find looks a connection up.
func (t *tracker) find(of tuple) {
	t.of, t.current = of, nil
	flags := openflow.CTTrk
	switch there, back := t.connections[of], t.connections[of.reversed()]; {
	case t.invalid:
		flags |= openflow.CTInv
	case t.related != nil:
		t.current = t.related
		flags |= openflow.CTRel | openflow.CTRpl
	case there != nil:
		t.current = there
		if there.established {
			flags |= openflow.CTEst
		} else {
			flags |= openflow.CTNew // no reply yet
		}
	case back != nil:
		t.current = back
		flags |= openflow.CTEst | openflow.CTRpl
	default:
		flags |= openflow.CTNew
	}
	t.state = uint64(flags)
}

// clear makes the packet untracked.
func (t *tracker) clear(f *fields) {
	t.current, t.state = nil, 0
	for _, at := range []openflow.Field{openflow.CTState, openflow.CTZone, openflow.CTMark, openflow.CTLabel} {
		f[at] = flowtext.Word{}
	}
}
