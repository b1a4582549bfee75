package flowtext

import (
	"fmt"
	"strings"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// String writes the term as in "nw_src=10.0.0.1".
func (t Term) String() string { return matchText([]Term{t}) }

// matchOf returns terms as package openflow sends them.
func matchOf(terms []Term) (m openflow.Match) {
	for _, t := range terms {
		m = m.Masked(t.Field, bytesOf(t.Field, t.Value), bytesOf(t.Field, t.Mask))
	}
	return m
}

// matchText writes terms as ovs-ofctl does, the protocol first.
func matchText(terms []Term) string { return matchOf(terms).String() }

// MatchText writes the matches as ovs-ofctl does; it is empty if the flow matches
// every packet, or is Foreign.
func (f *Flow) MatchText() string { return matchText(f.Match) }

// ActionsText writes the actions as ovs-ofctl does.
func (f *Flow) ActionsText() string {
	if len(f.Actions) == 0 {
		return "drop"
	}
	return joined(f.Actions)
}

// String writes the flow as ovs-ofctl takes it, without cookie and counters.
func (f *Flow) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table=%d,priority=%d", f.Table, f.Priority)
	if f.IdleTimeout > 0 {
		fmt.Fprintf(&b, ",idle_timeout=%d", f.IdleTimeout)
	}
	if f.HardTimeout > 0 {
		fmt.Fprintf(&b, ",hard_timeout=%d", f.HardTimeout)
	}
	if f.Foreign != "" {
		b.WriteString("," + f.Foreign)
		return b.String()
	}
	if m := f.MatchText(); m != "" {
		b.WriteString("," + m)
	}
	return b.String() + " actions=" + f.ActionsText()
}

func joined(actions []Action) string {
	words := make([]string, len(actions))
	for i, a := range actions {
		words[i] = a.String()
	}
	return strings.Join(words, ",")
}

// The actions have the notation of package openflow.

// sent returns the action as package openflow sends it.
func (a SetField) sent() openflow.Action {
	return openflow.Set(a.Field, bytesOf(a.Field, a.Value), bytesOf(a.Field, a.Mask))
}

// String writes "set_field:0x1/0xffff->reg0".
func (a SetField) String() string { return a.sent().String() }

// String writes "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]".
func (a CopyField) String() string {
	return "move:" + a.From.BitRange(a.FromBit, a.Bits) + "->" + a.To.BitRange(a.ToBit, a.Bits)
}

// String writes "output:3".
func (a Output) String() string { return openflow.Output(a.Port).String() }

// String writes "output:NXM_NX_REG1[]".
func (a OutputField) String() string { return openflow.OutputRegister(a.Field).String() }

// String writes "NORMAL".
func (OutputNormal) String() string { return openflow.OutputNormal().String() }

// String writes "IN_PORT".
func (OutputInPort) String() string { return openflow.OutputInPort().String() }

// String writes "ct(commit,table=61,zone=65520,exec(...))".
func (a CT) String() string {
	s := openflow.CTSpec{Commit: a.Commit, Force: a.Force, Zone: a.Zone, NAT: a.NAT, Source: a.Source, Destination: a.Destination, Table: a.Table}
	for _, set := range a.Exec {
		s.Exec = append(s.Exec, set.sent())
	}
	return openflow.CT(s).String()
}

// String writes "ct_clear".
func (CTClear) String() string { return openflow.CTClear().String() }

// String writes "dec_ttl".
func (DecTTL) String() string { return openflow.DecTTL().String() }

// String writes "conjunction(7,1/2)".
func (a Conjunction) String() string { return openflow.Conjunction(a.ID, a.K, a.N).String() }

// String writes "meter:7".
func (a Meter) String() string { return openflow.Meter(a.ID).String() }

// String writes "note:00.01".
func (a Note) String() string { return "note:" + a.Text }

// String writes "controller(max_len=128,id=7)".
func (a Controller) String() string {
	if a.Meter != 0 {
		return openflow.MeteredController(a.ID, a.MaxLen, a.Meter).String()
	}
	return openflow.Controller(a.ID, a.MaxLen).String()
}

// String writes "resubmit(,85)".
func (a Resubmit) String() string { return openflow.Resubmit(a.Table).String() }

// String writes "goto_table:70".
func (a GotoTable) String() string { return openflow.GotoTable(a.Table).String() }

// String writes "group:7".
func (a Group) String() string { return openflow.Hash(openflow.HashGroup{ID: a.ID}).String() }

// String writes "learn(table=32,...)".
func (a Learn) String() string {
	return openflow.Learn(openflow.LearnSpec{
		Table: a.Table, Priority: a.Priority, IdleTimeout: a.IdleTimeout, Cookie: a.Cookie, Limit: a.Limit,
		Match: matchOf(a.Match), Copies: a.Copies, Sets: a.Sets,
	}).String()
}
