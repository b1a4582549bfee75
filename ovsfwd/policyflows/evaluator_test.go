package policyflows

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// evaluator finds the verdict of flows on the first packet of a connection. It treats
// conjunctions as ovs-vswitchd does (conjunction_test.go).
type evaluator struct {
	t     fataler
	flows map[uint8][]*flowtext.Flow
}

func newEvaluator(t fataler, r *recorder) *evaluator {
	e := &evaluator{t: t, flows: map[uint8][]*flowtext.Flow{}}
	for _, f := range r.parsed(t) {
		e.flows[f.Table] = append(e.flows[f.Table], f)
	}
	for _, flows := range e.flows {
		slices.SortStableFunc(flows, func(a, b *flowtext.Flow) int { return int(b.Priority) - int(a.Priority) })
	}
	return e
}

// packet is one as the tables see it; port is that to which it leaves.
type packet struct {
	source, destination netip.Addr
	protocol            model.Protocol
	destinationPort     uint16
	port                uint32
}

func (p packet) String() string {
	return fmt.Sprintf("%s %s -> %s to port %d, leaving by %d", p.protocol, p.source, p.destination, p.destinationPort, p.port)
}

type fields map[openflow.Field]flowtext.Word

func (p packet) fields() fields {
	number := func(n uint64) flowtext.Word { return flowtext.Word{Lo: n} }
	f := fields{
		openflow.IPProto: number(uint64(p.protocol)), openflow.Reg1: number(uint64(p.port)), openflow.CTState: number(0x21),
	}
	if p.source.Is6() {
		f[openflow.EthType] = number(unix.ETH_P_IPV6)
		f[openflow.IPv6Src], f[openflow.IPv6Dst] = flowtext.WordOf(p.source.AsSlice()), flowtext.WordOf(p.destination.AsSlice())
	} else {
		f[openflow.EthType] = number(unix.ETH_P_IP)
		f[openflow.IPv4Src], f[openflow.IPv4Dst] = flowtext.WordOf(p.source.AsSlice()), flowtext.WordOf(p.destination.AsSlice())
	}
	switch p.protocol {
	case model.TCP:
		f[openflow.TCPDst] = number(uint64(p.destinationPort))
	case model.UDP:
		f[openflow.UDPDst] = number(uint64(p.destinationPort))
	case model.SCTP:
		f[openflow.SCTPDst] = number(uint64(p.destinationPort))
	}
	return f
}

// matches takes a field that the packet does not have for zero. A flow that matches a port
// matches its protocol as well.
func (f fields) matches(flow *flowtext.Flow) bool {
	return !slices.ContainsFunc(flow.Match, func(t flowtext.Term) bool { return !t.Matches(f[t.Field]) })
}

func isClause(f *flowtext.Flow) bool {
	if len(f.Actions) == 0 {
		return false
	}
	_, is := f.Actions[0].(flowtext.Conjunction)
	return is
}

// lookup returns the flows that may decide in a table; nil stands for none.
// More than one are those of conjunctions that are fulfilled at one priority.
func (e *evaluator) lookup(table uint8, f fields) []*flowtext.Flow {
	flows := e.flows[table]
	for len(flows) > 0 {
		n := 1
		for n < len(flows) && flows[n].Priority == flows[0].Priority {
			n++
		}
		var hard *flowtext.Flow
		seen, fulfilled := map[flowtext.Conjunction]bool{}, []uint32{}
		for _, flow := range flows[:n] {
			switch {
			case !f.matches(flow):
			case !isClause(flow) && hard != nil:
				e.t.Fatalf("which one decides is undefined:\n%s\n%s", flow, hard)
			case !isClause(flow):
				hard = flow
			default:
				for _, a := range flow.Actions {
					seen[a.(flowtext.Conjunction)] = true
				}
			}
		}
		if hard != nil {
			return []*flowtext.Flow{hard}
		}
		for part := range seen {
			all := true
			for k := uint8(1); k <= part.N; k++ {
				all = all && seen[flowtext.Conjunction{ID: part.ID, K: k, N: part.N}]
			}
			if all && !slices.Contains(fulfilled, part.ID) {
				fulfilled = append(fulfilled, part.ID)
			}
		}
		if len(fulfilled) > 0 {
			var actions []*flowtext.Flow
			for _, id := range fulfilled {
				actions = append(actions, e.action(table, f, id))
			}
			return actions
		}
		flows = flows[n:]
	}
	return []*flowtext.Flow{nil}
}

// action is the second lookup, of a fulfilled conjunction: clauses do not count.
func (e *evaluator) action(table uint8, f fields, id uint32) *flowtext.Flow {
	with := maps.Clone(f)
	with[openflow.ConjID] = flowtext.Word{Lo: uint64(id)}
	for _, flow := range e.flows[table] {
		if !isClause(flow) && with.matches(flow) {
			return flow
		}
	}
	return nil
}

// allows reports whether a packet that begins in a table leaves the metrics
// table of its direction.
func (e *evaluator) allows(table uint8, p packet) bool {
	return e.walk(table, p.fields(), p)
}

func (e *evaluator) walk(table uint8, f fields, p packet) bool {
	next := map[uint8]uint8{45: 50, 50: 60, 60: 61, 61: 70, 85: 90, 90: 100, 100: 101, 101: 105}
	if table == 70 || table == 105 {
		return true
	}
	var verdicts []bool
	for _, flow := range e.lookup(table, f) {
		to, after := next[table], maps.Clone(f)
		if flow != nil {
			to = e.perform(flow, after)
		}
		verdicts = append(verdicts, to != 0 && e.walk(to, after, p))
	}
	if len(slices.Compact(slices.Clone(verdicts))) != 1 {
		e.t.Fatalf("%s: rules with different actions are fulfilled at one priority of table %d", p, table)
	}
	return verdicts[0]
}

// perform executes the actions of a flow and returns the next table, 0 if the packet is
// dropped.
func (e *evaluator) perform(flow *flowtext.Flow, f fields) uint8 {
	to := uint8(0)
	for _, a := range flow.Actions {
		switch a := a.(type) {
		case flowtext.Note:
		case flowtext.SetField:
			f[a.Field] = f[a.Field].AndNot(a.Mask).Or(a.Value)
		case flowtext.GotoTable:
			to = a.Table
		case flowtext.CT:
			if !a.Commit {
				e.t.Fatalf("action %s of %s", a, flow)
			}
			to = a.Table
		default:
			e.t.Fatalf("action %s of %s", a, flow)
		}
	}
	return to
}
