package prove

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
)

// words are the fields of packets in the switch that all packets of a state have in common: all but addresses, protocol and port.
type words [64]flowtext.Word

// inSwitch is what packets on their way through the tables have in common.
type inSwitch struct {
	words
	// state is the one of the connection when it is looked up, mark and label are those that it has by now.
	state       uint64
	mark, label flowtext.Word
	nat         string
}

// toService stands in for the port of packets that the bridge leads to an endpoint of a Service. No packet of a proof is for a Service (node.canBe).
const toService = 1<<32 - 1

// left are packets that leave the switch by a port; port 0 has those that it drops.
type left struct {
	port uint32
	// rejected says that the agent answers packets that the switch drops.
	rejected bool
	inSwitch
}

// flowTable are the flows of a table, the highest priority first.
type flowTable struct {
	flows []*flowtext.Flow
	// reads are the fields that this table and those behind it read.
	reads [64]bool
}

// bridge are the tables of a switch.
type bridge struct {
	*space
	tables    map[uint8]*flowTable
	summaries map[uint8]map[inSwitch]map[left]packets
	// conditions are the packets of flows, by their terms that are no words.
	conditions map[*flowtext.Flow]packets
}

func newBridge(s *space, all []*flowtext.Flow) *bridge {
	b := &bridge{space: s, tables: map[uint8]*flowTable{}, summaries: map[uint8]map[inSwitch]map[left]packets{}, conditions: map[*flowtext.Flow]packets{}}
	for _, f := range all {
		if b.tables[f.Table] == nil {
			b.tables[f.Table] = &flowTable{}
		}
		b.tables[f.Table].flows = append(b.tables[f.Table].flows, f)
	}
	for _, t := range b.tables {
		slices.SortStableFunc(t.flows, func(a, b *flowtext.Flow) int { return -cmp.Compare(a.Priority, b.Priority) })
	}
	for changed := true; changed; {
		changed = false
		for _, t := range b.tables {
			for _, f := range t.flows {
				changed = b.noteReads(t, f) || changed
			}
		}
	}
	return b
}

// noteReads notes the fields that a flow reads, with the tables that it leads to.
func (b *bridge) noteReads(t *flowTable, f *flowtext.Flow) (changed bool) {
	read := func(at openflow.Field) {
		changed = changed || !t.reads[at]
		t.reads[at] = true
	}
	leaves := append(tunnelEnds(), openflow.InPort)
	readAll := func(all []openflow.Field) {
		for _, at := range all {
			read(at)
		}
	}
	for _, m := range f.Match {
		read(m.Field)
	}
	for _, a := range f.Actions {
		next := uint8(openflow.NoTable)
		switch a := a.(type) {
		case flowtext.CopyField:
			read(a.From)
		case flowtext.OutputField:
			read(a.Field)
			readAll(leaves)
		case flowtext.Output:
			readAll(leaves)
		case flowtext.GotoTable:
			next = a.Table
		case flowtext.Resubmit:
			next = a.Table
		case flowtext.CT:
			next = a.Table
		}
		if to := b.tables[next]; to != nil {
			for at, reads := range to.reads {
				if reads {
					read(openflow.Field(at))
				}
			}
		}
	}
	return changed
}

// isWord reports whether packets of one state have the same value in a field.
func isWord(f openflow.Field) bool {
	switch f {
	case openflow.IPv4Src, openflow.IPv4Dst, openflow.IPv6Src, openflow.IPv6Dst, openflow.IPProto, openflow.TCPDst, openflow.UDPDst, openflow.SCTPDst,
		openflow.ICMPv4Type, openflow.ICMPv4Code, openflow.ICMPv6Type, openflow.ICMPv6Code, openflow.TCPSrc, openflow.UDPSrc, openflow.SCTPSrc:
		return false
	}
	return true
}

// span returns the values of a term, whose mask has to be one of a prefix.
func span(t flowtext.Term) (first, last flowtext.Word, err error) {
	rest := flowtext.Ones(t.Field.Bits()).AndNot(t.Mask)
	for n := range t.Field.Bits() + 1 {
		if rest == flowtext.Ones(n) {
			return t.Value, t.Value.Or(rest), nil
		}
	}
	return first, last, fmt.Errorf("the mask of %s is none of a prefix", t.Field)
}

// portsOf are protocols by the field of their destination port.
func portsOf(f openflow.Field) (model.Protocol, bool) {
	p, known := map[openflow.Field]model.Protocol{
		openflow.TCPDst: model.TCP, openflow.UDPDst: model.UDP, openflow.SCTPDst: model.SCTP,
	}[f]
	return p, known
}

// terms calls a function for each term of a flow that is no word, with its values.
func terms(flow *flowtext.Flow, addresses func(side field, first, last netip.Addr), ports func(p model.Protocol, first, last uint16)) error {
	for _, t := range flow.Match {
		if isWord(t.Field) {
			continue
		}
		first, last, err := span(t)
		if err != nil {
			return err
		}
		switch t.Field {
		case openflow.IPv4Src, openflow.IPv6Src:
			addresses(source, first.Addr(t.Field), last.Addr(t.Field))
		case openflow.IPv4Dst, openflow.IPv6Dst:
			addresses(destination, first.Addr(t.Field), last.Addr(t.Field))
		case openflow.IPProto:
			ports(model.Protocol(t.Value.Lo), 0, 65535)
		case openflow.ICMPv4Type, openflow.ICMPv6Type:
			from, to := uint16(first.Lo)<<8, uint16(last.Lo)<<8|255
			if code, has := flow.Term(t.Field + 1); has {
				from, to = uint16(first.Lo)<<8|uint16(code.Value.Lo), uint16(first.Lo)<<8|uint16(code.Value.Lo)
			}
			p := model.ICMP
			if t.Field == openflow.ICMPv6Type {
				p = model.ICMPv6
			}
			ports(p, from, to)
		case openflow.ICMPv4Code, openflow.ICMPv6Code:
			if _, has := flow.Term(t.Field - 1); !has {
				return fmt.Errorf("a code of ICMP without a type")
			}
		default:
			p, known := portsOf(t.Field)
			if !known {
				return fmt.Errorf("%s is a field that the proof does not know", t.Field)
			}
			ports(p, uint16(first.Lo), uint16(last.Lo))
		}
	}
	return nil
}

// noteFlow notes the bounds that a flow asks for.
func (s *space) noteFlow(f *flowtext.Flow) {
	_ = terms(f, func(_ field, first, last netip.Addr) { s.noteAddresses(first, last) }, s.notePorts)
}

// divideByFlow divides the addresses by a flow.
func (s *space) divideByFlow(f *flowtext.Flow) {
	_ = terms(f, func(_ field, first, last netip.Addr) { s.divideRange(first, last) }, func(model.Protocol, uint16, uint16) {})
}

// condition returns the packets that a flow matches, if they have its words.
func (b *bridge) condition(f *flowtext.Flow, rewritten string) (packets, error) {
	if known, has := b.conditions[f]; has && rewritten == "" {
		return known, nil
	}
	src, _ := netip.ParseAddr(rewritten)
	all := everything
	err := terms(f, func(side field, first, last netip.Addr) {
		if model.FamilyOf(first) != b.family {
			all = nothing
		} else if side == source && src.IsValid() {
			all = b.and(all, b.when(first.Compare(src) <= 0 && src.Compare(last) <= 0))
		} else {
			all = b.and(all, b.any(side, b.within(first, last)))
		}
	}, func(p model.Protocol, first, last uint16) { all = b.and(all, b.protocolPorts(p, first, last)) })
	if rewritten == "" {
		b.conditions[f] = all
	}
	return all, err
}

// meets reports whether packets of a state have the words of a flow.
func (st *inSwitch) meets(f *flowtext.Flow) bool {
	for _, t := range f.Match {
		if isWord(t.Field) && !t.Matches(st.words[t.Field]) {
			return false
		}
	}
	return true
}

// table returns what becomes of all packets of a state that enter a table.
func (b *bridge) table(table uint8, st inSwitch, depth int) (map[left]packets, error) {
	if t := b.tables[table]; t != nil {
		for at := range st.words {
			if !t.reads[at] {
				st.words[at] = flowtext.Word{}
			}
		}
	}
	if known, has := b.summaries[table][st]; has {
		return known, nil
	}
	if depth > 64 {
		return nil, &NotProved{fmt.Sprintf("table %d", table), "the flows lead in circles"}
	}
	found, err := b.lookup(table, st, everything, true)
	if err != nil {
		return nil, err
	}
	out := gathered[left]{}
	for _, d := range found {
		if (d.some) == nothing {
			continue
		}
		ends := map[left]packets{{inSwitch: inSwitch{nat: st.nat}}: everything}
		if d.flow != nil {
			if ends, err = b.actions(d.flow.Actions, st, depth); err != nil {
				return nil, refused(err, fmt.Sprintf("table %d priority %d", table, d.flow.Priority))
			}
		}
		for e, p := range ends {
			out.add(b.space, e, b.and(p, d.some))
		}
	}
	if b.summaries[table] == nil {
		b.summaries[table] = map[inSwitch]map[left]packets{}
	}
	b.summaries[table][st] = joined(b.space, out)
	return b.summaries[table][st], nil
}

// refused is the error of an object, unless that of one behind it is known.
func refused(err error, place string) error {
	if known := (*NotProved)(nil); errors.As(err, &known) {
		return err
	}
	return &NotProved{place, err.Error()}
}

// actions returns what becomes of packets of a state by actions. Packets leave by one port at most.
func (b *bridge) actions(all []flowtext.Action, st inSwitch, depth int) (map[left]packets, error) {
	done := gathered[left]{}
	rest := everything
	leave := func(port uint32) error {
		if uint64(port) != st.words[openflow.InPort].Lo {
			if rest != everything {
				return errors.New("packets leave by more than one port")
			}
			done.add(b.space, left{port, false, inSwitch{nat: st.nat, mark: st.mark, label: st.label, words: leaving(st.words)}}, rest)
			rest = nothing
		}
		return nil
	}
	into := func(table uint8, st inSwitch) error {
		some, err := b.table(table, st, depth+1)
		if err != nil {
			return err
		}
		before := rest
		for e, p := range some {
			if e.port != 0 || e.rejected {
				if before != everything {
					return errors.New("packets leave by more than one port")
				}
				done.add(b.space, e, b.and(p, rest))
				rest = b.without(rest, p)
			}
		}
		return nil
	}
	for _, a := range all {
		var err error
		switch a := a.(type) {
		case flowtext.SetField:
			if a.Field == openflow.IPv4Src || a.Field == openflow.IPv6Src {
				st.nat = a.Value.Addr(a.Field).String()
				continue
			}
			if !isWord(a.Field) {
				return nil, fmt.Errorf("%s rewrites what the proof follows", a)
			}
			st.words[a.Field] = st.words[a.Field].AndNot(a.Mask).Or(a.Value)
		case flowtext.CopyField:
			if a.From == a.To && a.FromBit == a.ToBit {
				continue // it has the switch look at the field
			}
			if !isWord(a.From) || !isWord(a.To) {
				return nil, fmt.Errorf("%s copies what the proof follows", a)
			}
			bits := st.words[a.From].ShiftRight(a.FromBit).And(flowtext.Ones(a.Bits)).ShiftLeft(a.ToBit)
			st.words[a.To] = st.words[a.To].AndNot(flowtext.Ones(a.Bits).ShiftLeft(a.ToBit)).Or(bits)
		case flowtext.Controller:
			if a.ID == policyflows.RejectID {
				done.add(b.space, left{rejected: true, inSwitch: inSwitch{nat: st.nat}}, rest)
				rest = nothing
			}
		case flowtext.DecTTL, flowtext.Meter, flowtext.Note, flowtext.Learn, flowtext.Conjunction:
		case flowtext.Output:
			err = leave(a.Port)
		case flowtext.OutputField:
			err = leave(uint32(st.words[a.Field].Lo))
		case flowtext.GotoTable:
			err = into(a.Table, st)
		case flowtext.Resubmit:
			err = into(a.Table, st)
		case flowtext.Group: // it chooses the endpoint of a Service
			done.add(b.space, left{port: toService}, rest)
			return joined(b.space, done), nil
		case flowtext.CT:
			if a.Destination.IsValid() {
				done.add(b.space, left{port: toService}, rest)
				return joined(b.space, done), nil
			}
			if a.Zone == pipeline.ServiceZone && !a.Commit && a.Table == openflow.NoTable {
				continue // which knows no new connection
			}
			known := st
			known.track(a)
			st.mark, st.label = known.mark, known.label
			if a.NAT || a.Source.Address.IsValid() {
				return nil, fmt.Errorf("%s translates addresses", a)
			}
			if a.Table != openflow.NoTable {
				err = into(a.Table, known)
			}
		case flowtext.CTClear:
			for _, at := range []openflow.Field{openflow.CTState, openflow.CTZone, openflow.CTMark, openflow.CTLabel} {
				st.words[at] = flowtext.Word{}
			}
		default:
			return nil, fmt.Errorf("%s is an action that the proof does not know", a)
		}
		if err != nil {
			return nil, err
		}
	}
	done.add(b.space, left{inSwitch: inSwitch{nat: st.nat}}, rest)
	return joined(b.space, done), nil
}

// leaving are the words that matter behind the switch: where a tunnel ends.
func leaving(w words) (out words) {
	for _, at := range tunnelEnds() {
		out[at] = w[at]
	}
	return out
}

func tunnelEnds() []openflow.Field { return []openflow.Field{openflow.TunDst, openflow.TunIPv6Dst} }

// track looks the connection up, and with commit marks it.
func (st *inSwitch) track(a flowtext.CT) {
	if a.Commit {
		set := words{openflow.CTMark: st.mark, openflow.CTLabel: st.label}
		for _, e := range a.Exec {
			set[e.Field] = set[e.Field].AndNot(e.Mask).Or(e.Value)
		}
		st.mark, st.label = set[openflow.CTMark], set[openflow.CTLabel]
	}
	st.words[openflow.CTState], st.words[openflow.CTZone] = flowtext.Word{Lo: st.state}, flowtext.Word{Lo: uint64(a.Zone)}
	st.words[openflow.CTMark], st.words[openflow.CTLabel] = st.mark, st.label
}

// flowWord is an address as a word.
func flowWord(a netip.Addr) flowtext.Word { return flowtext.WordOf(a.AsSlice()) }

// entering is the state of packets of new connections that enter by a port.
func entering(f model.Family, port uint32, from, to net.HardwareAddr) inSwitch {
	st := inSwitch{state: uint64(openflow.CTTrk | openflow.CTNew)}
	st.words[openflow.InPort] = flowtext.Word{Lo: uint64(port)}
	st.words[openflow.EthSrc], st.words[openflow.EthDst] = flowtext.WordOf(from), flowtext.WordOf(to)
	st.words[openflow.IPTTL] = flowtext.Word{Lo: 64}
	st.words[openflow.EthType] = flowtext.Word{Lo: 0x0800}
	if f == model.IPv6 {
		st.words[openflow.EthType] = flowtext.Word{Lo: 0x86dd}
	}
	st.words[openflow.TCPFlags] = flowtext.Word{Lo: uint64(openflow.TCPSYN)}
	return st
}
