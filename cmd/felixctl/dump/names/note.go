package names

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/tables"
)

// Note returns the subject of a chain, a rule, a set, an element or a flow, beyond its
// own text; "" if unknown. Callers use it as dump.TextOptions.Note.
func (n *Names) Note(object any) string {
	switch o := object.(type) {
	case *dump.Chain:
		return n.Chain(o.Name)
	case *dump.Set:
		return n.Set(o.Name)
	case dump.Element:
		return n.element(o)
	case *dump.Rule:
		return n.rule(o)
	case *flowtext.Flow:
		return n.flow(o)
	}
	return ""
}

// found collects names, each once.
type found []string

func (f *found) add(what string) {
	if what != "" && !slices.Contains(*f, what) {
		*f = append(*f, what)
	}
}

func (f *found) labelled(label, what string) {
	if what != "" {
		f.add(label + " " + what)
	}
}

func (f found) String() string { return strings.Join(f, "; ") }

func (n *Names) element(e dump.Element) string {
	if e.Parts != nil && e.Verdict == nil {
		return n.parts(e)
	}
	var f found
	if e.Port != 0 {
		f.add(n.Frontend(netip.AddrPortFrom(e.Prefix.Addr(), e.Port), e.Protocol))
	}
	if !e.Last.IsValid() && len(f) == 0 {
		f.add(n.Prefix(e.Prefix))
	}
	if e.Verdict != nil {
		f.add(n.Chain(tables.Target(e.Verdict)))
	}
	return f.String()
}

func (n *Names) rule(r *dump.Rule) string {
	var f found
	for _, m := range r.Matches {
		switch m := m.(type) {
		case tables.MatchPrefix:
			f.labelled(side(m.Side), n.Prefix(m.Prefix))
		case tables.MatchSet:
			f.labelled(side(m.Side), n.Set(m.Set))
		default:
			f.add(n.Set(tables.SetOf(m)))
		}
	}
	f.labelled("rule", n.titles[r.Comment])
	// A comment names the policy already.
	if what := n.Chain(tables.Target(r.Action)); r.Comment == "" || !strings.Contains(what, r.Comment) {
		f.add(what)
	}
	return f.String()
}

func side(s tables.Side) string {
	if s == tables.Source {
		return "from"
	}
	return "to"
}

// flow names the matches of a flow, and its rules.
func (n *Names) flow(o *flowtext.Flow) string {
	var f found
	for _, t := range o.Match {
		f.add(n.term(t))
	}
	for _, a := range o.Actions {
		switch a := a.(type) {
		case flowtext.Conjunction:
			f.add(n.titledRule(a.ID))
		case flowtext.SetField:
			f.add(n.term(flowtext.Term(a)))
		case flowtext.CT:
			f.labelled("to", n.Address(a.Destination.Addr()))
		}
	}
	const most = 3
	if more := len(f) - most; more > 1 {
		f = append(f[:most], fmt.Sprintf("%d more", more))
	}
	return f.String()
}

// term names the value of a field.
func (n *Names) term(t flowtext.Term) string {
	switch t.Field {
	case openflow.IPv4Src, openflow.IPv6Src, openflow.ARPSpa:
		return labelled("from", n.Prefix(prefixOf(t)))
	case openflow.IPv4Dst, openflow.IPv6Dst, openflow.ARPTpa, openflow.NDTarget:
		return labelled("to", n.Prefix(prefixOf(t)))
	case openflow.InPort:
		return labelled("from", n.Port(uint32(t.Value.Lo)))
	case openflow.Reg1:
		return labelled("to", n.Port(uint32(t.Value.Lo)))
	case openflow.EthDst:
		return labelled("to", n.MAC(macOf(t)))
	case openflow.ConjID, openflow.Reg3, openflow.Reg5, openflow.Reg6:
		return n.titledRule(uint32(t.Value.Lo))
	case openflow.CTLabel:
		// The rule of egress is in the upper half of 64 bits, that of ingress below.
		switch low := flowtext.Ones(ruleBits); t.Mask {
		case low:
			return n.titledRule(uint32(t.Value.Lo))
		case low.ShiftLeft(ruleBits):
			return n.titledRule(uint32(t.Value.ShiftRight(ruleBits).Lo))
		}
	}
	return ""
}

// ruleBits is the width of a rule's id.
const ruleBits = 32

func labelled(label, what string) string {
	if what == "" {
		return ""
	}
	return label + " " + what
}

func macOf(t flowtext.Term) string {
	v := t.Value.Lo
	return net.HardwareAddr{byte(v >> 40), byte(v >> 32), byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}.String()
}

// prefixOf returns the prefix of an address match, or no prefix.
func prefixOf(t flowtext.Term) netip.Prefix {
	length := 0
	for ; length <= t.Field.Bits() && flowtext.Ones(length).ShiftLeft(t.Field.Bits()-length) != t.Mask; length++ {
	}
	if length > t.Field.Bits() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(t.Addr(), length)
}
