package trace

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
)

// bridge walks a packet through the flows of a node's bridge.
type bridge struct {
	site    *Site
	namer   Namer
	tracker *tracker
	steps   []Step
	// out are the ports that the packet left by, with its fields as they were then.
	out     []output
	lookups int
	// missed are the rules of policies that were not fulfilled in this direction.
	missed []Miss
}

// output is a packet that leaves the bridge.
type output struct {
	port   uint32
	fields fields
}

// maxLookups ends a walk that goes in circles, as Open vSwitch does (4096
// resubmits).
const maxLookups = 4096

// hops is the time to live of a packet that its sender has just sent.
const hops = 64

// newFields returns the fields of a packet that comes in by a port.
func newFields(p Packet, port uint32, ethSrc, ethDst []byte) fields {
	var f fields
	number := func(at openflow.Field, n uint64) { f[at] = flowtext.Word{Lo: n} }
	number(openflow.InPort, uint64(port))
	f[openflow.EthSrc], f[openflow.EthDst] = flowtext.WordOf(ethSrc), flowtext.WordOf(ethDst)
	number(openflow.IPProto, uint64(p.Protocol))
	number(openflow.IPTTL, hops)
	src, dst := openflow.IPv4Src, openflow.IPv4Dst
	number(openflow.EthType, 0x0800)
	if p.Family() == model.IPv6 {
		src, dst = openflow.IPv6Src, openflow.IPv6Dst
		number(openflow.EthType, 0x86dd)
	}
	f[src], f[dst] = flowtext.WordOf(p.Source.AsSlice()), flowtext.WordOf(p.Destination.AsSlice())
	ports := map[model.Protocol][2]openflow.Field{
		model.TCP: {openflow.TCPSrc, openflow.TCPDst}, model.UDP: {openflow.UDPSrc, openflow.UDPDst}, model.SCTP: {openflow.SCTPSrc, openflow.SCTPDst},
	}
	if at, has := ports[p.Protocol]; has {
		number(at[0], uint64(p.SourcePort))
		number(at[1], uint64(p.Port))
	}
	switch {
	case p.asks():
		number(openflow.TCPFlags, uint64(openflow.TCPSYN))
	case p.Protocol == model.TCP:
		number(openflow.TCPFlags, uint64(openflow.TCPACK))
	}
	kind, code := model.ICMPTypeAndCode(p.Port)
	switch p.Protocol {
	case model.ICMP:
		number(openflow.ICMPv4Type, uint64(kind))
		number(openflow.ICMPv4Code, uint64(code))
	case model.ICMPv6:
		number(openflow.ICMPv6Type, uint64(kind))
		number(openflow.ICMPv6Code, uint64(code))
	}
	return f
}

// addr reads an address out of the fields.
func (f *fields) addr(v4, v6 openflow.Field) netip.Addr {
	if f[openflow.EthType].Lo == 0x0800 {
		return f[v4].Addr(v4)
	}
	return f[v6].Addr(v6)
}

func (f *fields) source() netip.Addr      { return f.addr(openflow.IPv4Src, openflow.IPv6Src) }
func (f *fields) destination() netip.Addr { return f.addr(openflow.IPv4Dst, openflow.IPv6Dst) }

// run walks the packet from table 0 on.
func (w *bridge) run(f fields) error { return w.table(0, &f) }

// table looks up a table and applies the flow's actions.
func (w *bridge) table(table uint8, f *fields) error {
	if w.lookups++; w.lookups > maxLookups {
		return fmt.Errorf("bridge %s: more than %d lookups: the flows lead in circles", w.site.Bridge, maxLookups)
	}
	h, err := w.site.Flows.lookup(table, f)
	if err != nil {
		return err
	}
	step := Step{Node: w.site.Node, Place: "bridge " + w.site.Bridge, Table: TableName(table)}
	if h.flow == nil {
		step.Effect = "no flow matches"
		w.steps = append(w.steps, step)
		return nil
	}
	step.Number, step.Rule = int(h.flow.Priority), flowText(h.flow)
	w.describe(&step, h, f)
	step.Effect = effectOf(h.flow)
	w.steps = append(w.steps, step)
	return w.actions(h.flow, f)
}

// actions carries out the actions of a flow in their order.
func (w *bridge) actions(flow *flowtext.Flow, f *fields) error {
	for _, a := range flow.Actions {
		switch a := a.(type) {
		case flowtext.SetField:
			f.set(a)
		case flowtext.CopyField:
			bits := f[a.From].ShiftRight(a.FromBit).And(flowtext.Ones(a.Bits)).ShiftLeft(a.ToBit)
			f[a.To] = f[a.To].AndNot(flowtext.Ones(a.Bits).ShiftLeft(a.ToBit)).Or(bits)
		case flowtext.DecTTL, flowtext.Meter, flowtext.Controller, flowtext.Note:
			// A report that the meter leaves out changes nothing: nothing comes behind it.
		case flowtext.Learn:
			// It leaves a flow behind, and does nothing to this packet.
		case flowtext.Output:
			w.leave(a.Port, f)
		case flowtext.OutputField:
			w.leave(uint32(f[a.Field].Lo), f)
		case flowtext.OutputInPort:
			w.leave(uint32(f[openflow.InPort].Lo), f)
		case flowtext.GotoTable:
			return w.table(a.Table, f)
		case flowtext.Resubmit:
			if err := w.table(a.Table, f); err != nil {
				return err
			}
		case flowtext.CT:
			if err := w.ct(a, f); err != nil {
				return err
			}
		case flowtext.CTClear:
			w.tracker.clear(f)
		default:
			return &UnknownRule{
				Place: "bridge " + w.site.Bridge, Table: fmt.Sprintf("table %d", flow.Table), Number: int(flow.Priority), Text: flow.String(),
				Reason: fmt.Sprintf("%s is no action for a packet of a connection", a),
			}
		}
	}
	return nil
}

func (f *fields) set(a flowtext.SetField) {
	f[a.Field] = f[a.Field].AndNot(a.Mask).Or(a.Value)
}

// leave sends the packet out of a port, but never back by the one that it came by.
func (w *bridge) leave(port uint32, f *fields) {
	if uint64(port) != f[openflow.InPort].Lo {
		w.out = append(w.out, output{port, *f})
	}
}

// ct carries out a ct action: where it has a table, the packet goes on there with
// its state known, and the actions behind see it as it was.
func (w *bridge) ct(a flowtext.CT, f *fields) error {
	known := *f
	if a.Zone != pipeline.ServiceZone {
		w.tracker.track(a, &known)
	}
	if a.Table == openflow.NoTable {
		f.translate(a) // the packet stays
		return nil
	}
	known.translate(a)
	return w.table(a.Table, &known)
}

// translate gives the packet the address that a new connection gets.
func (f *fields) translate(a flowtext.CT) {
	if from := a.Source.Address; from.Is4() {
		f[openflow.IPv4Src] = flowtext.WordOf(from.AsSlice())
	} else if from.IsValid() {
		f[openflow.IPv6Src] = flowtext.WordOf(from.AsSlice())
	}
	to := a.Destination
	if !to.IsValid() {
		return
	}
	at := openflow.IPv4Dst
	if to.Addr().Is6() {
		at = openflow.IPv6Dst
	}
	f[at] = flowtext.WordOf(to.Addr().AsSlice())
	port := openflow.TCPDst
	if f[openflow.IPProto].Lo == uint64(model.UDP) {
		port = openflow.UDPDst
	}
	f[port] = flowtext.Word{Lo: uint64(to.Port())}
}

// flowText is the flow without its table.
func flowText(f *flowtext.Flow) string {
	match := f.MatchText()
	if match == "" {
		match = "any"
	}
	return match + " actions=" + f.ActionsText()
}

// effectOf describes the effect of a flow in words.
func effectOf(f *flowtext.Flow) string {
	if rejects(f) {
		return "reject"
	}
	if f.Drops() {
		return "drop"
	}
	var words []string
	for _, a := range f.Actions {
		switch a := a.(type) {
		case flowtext.GotoTable:
			words = append(words, fmt.Sprintf("table %d", a.Table))
		case flowtext.Resubmit:
			words = append(words, fmt.Sprintf("table %d", a.Table))
		case flowtext.CT:
			words = append(words, ctEffect(a))
		case flowtext.CTClear:
			words = append(words, "state forgotten")
		case flowtext.Learn:
			words = append(words, "association learned")
		case flowtext.SetField:
			if text := setEffect(a); text != "" {
				words = append(words, text)
			}
		case flowtext.DecTTL, flowtext.Note:
		default:
			words = append(words, a.String())
		}
	}
	return strings.Join(words, ", ")
}

// rejects reports whether the agent answers packets of the flow, which the switch drops.
func rejects(f *flowtext.Flow) bool {
	return f.Drops() && slices.ContainsFunc(f.Actions, func(a flowtext.Action) bool {
		c, ok := a.(flowtext.Controller)
		return ok && c.ID == policyflows.RejectID
	})
}

func ctEffect(a flowtext.CT) string {
	text := "connection looked up"
	if a.NAT {
		text = "translated as its connection is"
	}
	if a.Commit {
		text = "connection committed"
	}
	for _, e := range a.Exec {
		if e.Field == openflow.CTLabel && e.Mask == (flowtext.Word{Hi: pipeline.AllowedLabel().Hi}) {
			text = "connection allowed"
		}
	}
	if a.Source.Address.IsValid() {
		text = "source translated to " + a.Source.Address.String()
	}
	if a.Destination.IsValid() {
		text = "translated to the endpoint " + a.Destination.String()
	}
	if a.Table == openflow.NoTable {
		return text
	}
	return fmt.Sprintf("%s, table %d", text, a.Table)
}

// setEffect describes a set_field in words, "" if readers do not need it.
func setEffect(a flowtext.SetField) string {
	switch a.Field {
	case openflow.Reg1:
		return fmt.Sprintf("to port %d", a.Value.Lo)
	case openflow.EthDst, openflow.IPv4Src, openflow.IPv6Src, openflow.TunDst, openflow.TunIPv6Dst:
		return fmt.Sprintf("%s becomes %s", a.Field, strings.TrimPrefix(strings.SplitN(a.String(), "->", 2)[0], "set_field:"))
	case openflow.Reg0:
		if a.Mask.Lo == uint64(pipeline.Denied) {
			return "denied"
		}
	}
	return ""
}
