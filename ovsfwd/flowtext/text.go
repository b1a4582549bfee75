package flowtext

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// format writes a value with its mask as ovs-ofctl does.
func format(f openflow.Field, value, mask Word) string {
	if mask == Ones(f.Bits()) {
		return f.Format(bytesOf(f, value), nil)
	}
	return f.Format(bytesOf(f, value), bytesOf(f, mask))
}

// String writes the term as in "nw_src=10.0.0.1".
func (t Term) String() string { return matchText([]Term{t}) }

// matchText writes terms as ovs-ofctl does, the protocol first.
func matchText(terms []Term) string {
	var m openflow.Match
	for _, t := range terms {
		m = m.Masked(t.Field, bytesOf(t.Field, t.Value), bytesOf(t.Field, t.Mask))
	}
	return m.String()
}

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

func joined[A Action](actions []A) string {
	words := make([]string, len(actions))
	for i, a := range actions {
		words[i] = a.String()
	}
	return strings.Join(words, ",")
}

// String writes "set_field:0x1/0xffff->reg0".
func (a SetField) String() string {
	return "set_field:" + format(a.Field, a.Value, a.Mask) + "->" + a.Field.String()
}

// String writes "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]".
func (a CopyField) String() string {
	return "move:" + bitRange(a.From, a.FromBit, a.Bits) + "->" + bitRange(a.To, a.ToBit, a.Bits)
}

// bitRange writes a field with the bits that are meant.
func bitRange(f openflow.Field, first, count int) string {
	switch {
	case first == 0 && count == f.Bits():
		return f.LongName() + "[]"
	case count == 1:
		return fmt.Sprintf("%s[%d]", f.LongName(), first)
	}
	return fmt.Sprintf("%s[%d..%d]", f.LongName(), first, first+count-1)
}

// String writes "output:3".
func (a Output) String() string { return fmt.Sprintf("output:%d", a.Port) }

// String writes "output:NXM_NX_REG1[]".
func (a OutputField) String() string { return "output:" + a.Field.LongName() + "[]" }

// String writes "NORMAL".
func (OutputNormal) String() string { return "NORMAL" }

// String writes "IN_PORT".
func (OutputInPort) String() string { return "IN_PORT" }

// String writes "ct(commit,table=61,zone=65520,exec(...))".
func (a CT) String() string {
	var words []string
	if a.Commit {
		words = append(words, "commit")
	}
	if a.Force {
		words = append(words, "force")
	}
	if a.Table != openflow.NoTable {
		words = append(words, fmt.Sprintf("table=%d", a.Table))
	}
	if a.Zone != 0 { // ovs-ofctl leaves out zone 0
		words = append(words, fmt.Sprintf("zone=%d", a.Zone))
	}
	if a.NAT {
		words = append(words, "nat")
	}
	if len(a.Exec) > 0 {
		words = append(words, "exec("+joined(a.Exec)+")")
	}
	return "ct(" + strings.Join(words, ",") + ")"
}

// String writes "ct_clear".
func (CTClear) String() string { return "ct_clear" }

// String writes "dec_ttl".
func (DecTTL) String() string { return "dec_ttl" }

// String writes "conjunction(7,1/2)".
func (a Conjunction) String() string { return fmt.Sprintf("conjunction(%d,%d/%d)", a.ID, a.K, a.N) }

// String writes "meter:7".
func (a Meter) String() string { return fmt.Sprintf("meter:%d", a.ID) }

// String writes "note:00.01".
func (a Note) String() string { return "note:" + a.Text }

// String writes "controller(max_len=128,id=7)".
func (a Controller) String() string {
	if a.Meter != 0 {
		return fmt.Sprintf("controller(max_len=%d,id=%d,meter_id=%d)", a.MaxLen, a.ID, a.Meter)
	}
	return fmt.Sprintf("controller(max_len=%d,id=%d)", a.MaxLen, a.ID)
}

// String writes "resubmit(,85)".
func (a Resubmit) String() string { return fmt.Sprintf("resubmit(,%d)", a.Table) }

// String writes "goto_table:70".
func (a GotoTable) String() string { return fmt.Sprintf("goto_table:%d", a.Table) }

// String writes "learn(table=32,...)".
func (a Learn) String() string {
	words := []string{
		fmt.Sprintf("table=%d,idle_timeout=%d,priority=%d,cookie=%#x,limit=%d", a.Table, a.IdleTimeout, a.Priority, a.Cookie, a.Limit),
	}
	for _, t := range a.Match {
		name := t.Field.String()
		if t.Field == openflow.IPProto {
			name = "nw_proto" // the one name that all versions of ovs-ofctl take here
		}
		words = append(words, name+"="+format(t.Field, t.Value, t.Mask))
	}
	for _, c := range a.Copies {
		word := c.Field.LongName() + "[]"
		if c.From != c.Field {
			word += "=" + c.From.LongName() + "[]"
		}
		words = append(words, word)
	}
	for _, s := range a.Sets {
		first, count := bitsOf(s.Mask)
		words = append(words, fmt.Sprintf("load:%#x->%s", s.Value.ShiftRight(first).Lo, bitRange(s.Field, first, count)))
	}
	return "learn(" + strings.Join(words, ",") + ")"
}

// bitsOf returns the first bit of a mask and the number of its bits.
func bitsOf(mask Word) (first, count int) {
	first = bits.TrailingZeros64(mask.Lo)
	if first == 64 {
		first += bits.TrailingZeros64(mask.Hi)
	}
	return first, bits.OnesCount64(mask.Lo) + bits.OnesCount64(mask.Hi)
}
