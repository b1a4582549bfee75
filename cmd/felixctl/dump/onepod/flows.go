package onepod

import (
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// flows returns the flows of the judging tables that packets of a pod can match.
func flows(all []*flowtext.Flow, of control.Attachment) []*flowtext.Flow {
	var out []*flowtext.Flow
	rules := map[uint64]bool{}
	for _, t := range pipeline.Tables() {
		if t.Judges == 0 {
			continue
		}
		j := judging{Table: t, pod: of, rules: rules}
		some := slices.DeleteFunc(slices.Clone(all), func(f *flowtext.Flow) bool { return f.Table != t.Number || !j.possible(f) })
		for _, f := range some {
			j.note(f)
		}
		out = append(out, slices.DeleteFunc(some, func(f *flowtext.Flow) bool { return !j.ofItsRules(f) })...)
	}
	return out
}

// judging is a table that judges, for one pod.
type judging struct {
	pipeline.Table
	pod control.Attachment
	// rules are the ids of the rules that apply to the pod, of this table and those before it.
	rules map[uint64]bool
}

// names reports whether the flow names the pod: its address for egress, its port for ingress.
func (j *judging) names(f *flowtext.Flow) bool {
	if j.Judges == model.Ingress {
		port, found := f.Term(openflow.Reg1)
		return found && port.Value.Lo == uint64(j.pod.OFPort)
	}
	a, found := address(f, openflow.IPv4Src, openflow.IPv6Src)
	return found && slices.Contains(j.pod.Addresses, a)
}

// possible reports whether a packet of the pod can match the flow.
func (j *judging) possible(f *flowtext.Flow) bool {
	if j.Judges == model.Egress {
		_, pinned := address(f, openflow.IPv4Src, openflow.IPv6Src)
		return !pinned || j.names(f)
	}
	if a, found := address(f, openflow.IPv4Dst, openflow.IPv6Dst); found && !slices.Contains(j.pod.Addresses, a) {
		return false // a named port of another pod
	}
	_, pinned := f.Term(openflow.Reg1)
	return !pinned || j.names(f)
}

// note adds the rules of a flow that names the pod.
func (j *judging) note(f *flowtext.Flow) {
	if j.names(f) {
		for _, a := range f.Actions {
			if c, ok := a.(flowtext.Conjunction); ok {
				j.rules[uint64(c.ID)] = true
			}
		}
	}
}

// ofItsRules reports whether the flow is for all rules, or for one that applies to the pod.
func (j *judging) ofItsRules(f *flowtext.Flow) bool {
	conjunctions := 0
	for _, a := range f.Actions {
		if c, ok := a.(flowtext.Conjunction); ok {
			if j.rules[uint64(c.ID)] {
				return true
			}
			conjunctions++
		}
	}
	if conjunctions > 0 {
		return false
	}
	if t, found := f.Term(openflow.ConjID); found {
		return j.rules[t.Value.Lo]
	}
	id, counts := j.counted(f)
	return !counts || j.rules[id]
}

// counted returns the rule that a flow of the tables of counters counts.
func (j *judging) counted(f *flowtext.Flow) (id uint64, found bool) {
	if j.Number != pipeline.TableEgressMetrics && j.Number != pipeline.TableIngressMetrics {
		return 0, false
	}
	for _, field := range []openflow.Field{openflow.Reg3, openflow.Reg5, openflow.Reg6, openflow.CTLabel} {
		if t, found := f.Term(field); found && t.Value.Hi == 0 {
			if field == openflow.CTLabel && j.Judges == model.Egress {
				return t.Value.Lo >> 32, true // ingress has the lower half
			}
			return t.Value.Lo, true
		}
	}
	return 0, false
}

// address returns the single address that the flow matches in one of the fields.
func address(f *flowtext.Flow, fields ...openflow.Field) (netip.Addr, bool) {
	for _, field := range fields {
		if t, found := f.Term(field); found && t.Exact() {
			return t.Addr(), true
		}
	}
	return netip.Addr{}, false
}
