package dump

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables/iptables"
)

// TextOptions say how much is written.
type TextOptions struct {
	// Counters are those of rules and flows.
	Counters bool
	// Elements says how much of a set is written; what is not full cannot be loaded.
	Elements Elements
	// Note, if not nil, says something about a *Chain, *Rule, *Set, Element or *Flow,
	// which is then written behind it as a remark. With it, too, the text is for people
	// only: not every tool takes remarks there.
	Note func(object any) string
}

// note returns the remark about an object.
func (o TextOptions) note(object any) string {
	if o.Note == nil {
		return ""
	}
	if text := o.Note(object); text != "" {
		return "  # " + text
	}
	return ""
}

// Elements says how much of a set is written.
type Elements uint8

// Full writes the elements of sets, CountOnly how many there are, None nothing of
// them.
const (
	Full Elements = iota
	CountOnly
	None
)

// ParseElements reads "full", "count" or "none".
func ParseElements(s string) (Elements, error) {
	for _, e := range []Elements{Full, CountOnly, None} {
		if s == e.String() {
			return e, nil
		}
	}
	return 0, fmt.Errorf("%q is none of full, count and none", s)
}

// String returns "full", "count" or "none".
func (e Elements) String() string {
	switch e {
	case Full:
		return "full"
	case CountOnly:
		return "count"
	case None:
		return "none"
	}
	return fmt.Sprintf("elements(%d)", uint8(e))
}

// WriteNFT writes tables of nftables as nft lists them; `nft -f` takes it.
func WriteNFT(out io.Writer, all []*Table, o TextOptions) error {
	w := bufio.NewWriter(out)
	for _, t := range all {
		if t.Dialect == NFT {
			t.writeNFT(w, o)
		}
	}
	return w.Flush()
}

func (t *Table) writeNFT(w *bufio.Writer, o TextOptions) {
	fmt.Fprintf(w, "table %s %s {\n", t.Family, t.Name)
	between := ""
	for _, s := range t.Sets {
		w.WriteString(between)
		s.writeNFT(w, o)
		between = "\n"
	}
	for _, text := range t.Foreign {
		fmt.Fprintf(w, "%s\t%s\n", between, strings.ReplaceAll(text, "\n", "\n\t"))
		between = "\n"
	}
	for _, c := range t.Chains {
		w.WriteString(between)
		c.writeNFT(w, o)
		between = "\n"
	}
	w.WriteString("}\n")
}

func (s *Set) writeNFT(w *bufio.Writer, o TextOptions) {
	kind, flags, flagged := strings.Cut(s.Type, " flags ")
	fmt.Fprintf(w, "\t%s %s {%s\n\t\ttype %s\n", either(strings.Contains(kind, " : "), "map", "set"), s.Name, o.note(s), kind)
	if flagged {
		fmt.Fprintf(w, "\t\tflags %s\n", flags)
	}
	n := len(s.Elements) + len(s.Foreign)
	switch {
	case n == 0 || o.Elements == None:
	case o.Elements == CountOnly:
		fmt.Fprintf(w, "\t\t# elements: %d\n", n)
	default:
		w.WriteString("\t\telements = {\n")
		for _, e := range s.Elements {
			fmt.Fprintf(w, "\t\t\t%s,%s\n", nftElement(s.Kind, e), o.note(e))
		}
		for _, text := range s.Foreign {
			fmt.Fprintf(w, "\t\t\t%s,\n", text)
		}
		w.WriteString("\t\t}\n")
	}
	w.WriteString("\t}\n")
}

func (c *Chain) writeNFT(w *bufio.Writer, o TextOptions) {
	fmt.Fprintf(w, "\tchain %s {%s\n", c.Name, o.note(c))
	if h := c.Hook; h != nil {
		device := ""
		if h.Device != "" {
			device = " device " + h.Device
		}
		fmt.Fprintf(w, "\t\ttype %s hook %s%s priority %d; policy %s;\n", h.Type, h.Point, device, h.Priority, c.Policy)
	}
	for i := range c.Rules {
		fmt.Fprintf(w, "\t\t%s%s\n", c.Rules[i].NFT(o.Counters), o.note(&c.Rules[i]))
	}
	w.WriteString("\t}\n")
}

// NFT writes the rule as nft lists it, with its comment.
func (r *Rule) NFT(counters bool) string {
	counter := ""
	switch {
	case r.Counted && counters:
		counter = fmt.Sprintf("counter packets %d bytes %d", r.Packets, r.Bytes)
	case r.Counted:
		counter = "counter"
	}
	if r.Foreign != "" {
		// Where the counter was is not known any more.
		return strings.TrimSpace(either(r.Foreign == "counter", counter, r.Foreign) + nftComment(r))
	}
	return nftText(r.Rule, counter) + nftComment(r)
}

// WriteIPTables writes the tables of iptables of a family as iptables-save does;
// iptables-restore takes it.
func WriteIPTables(out io.Writer, all []*Table, f model.Family, o TextOptions) error {
	w := bufio.NewWriter(out)
	for _, t := range all {
		if t.Dialect == IPTables && t.IPFamily() == f {
			t.writeIPTables(w, o)
		}
	}
	return w.Flush()
}

func (t *Table) writeIPTables(w *bufio.Writer, o TextOptions) {
	fmt.Fprintf(w, "*%s\n", t.Name)
	for _, c := range t.Chains {
		policy := "-"
		if c.Policy != "" {
			policy = strings.ToUpper(c.Policy)
		}
		fmt.Fprintf(w, ":%s %s [0:0]%s\n", c.Name, policy, o.note(c))
	}
	for _, c := range t.Chains {
		for i := range c.Rules {
			r := &c.Rules[i]
			if o.Counters {
				fmt.Fprintf(w, "[%d:%d] ", r.Packets, r.Bytes)
			}
			fmt.Fprintf(w, "-A %s%s\n", strings.TrimRight(c.Name+" "+r.IPTables(), " "), o.note(r))
		}
	}
	w.WriteString("COMMIT\n")
}

// IPTables writes the rule as iptables-save does, without its chain.
func (r *Rule) IPTables() string {
	if r.Foreign == "" {
		if text, err := iptables.Text(r.Rule, r.Hash); err == nil {
			return text
		}
		return nftText(r.Rule, "") // a rule that iptables cannot have
	}
	comment := ""
	if r.Hash != "" {
		comment = " -m comment --comment " + savedWords([]string{"flx:" + r.Hash})
	}
	if r.Comment != "" {
		comment += " -m comment --comment " + savedWords([]string{r.Comment})
	}
	if r.Foreign == "counter" {
		return strings.TrimSpace(comment)
	}
	// Before the target, which some of the tools want last.
	if i := strings.LastIndex(" "+r.Foreign, " -j "); i >= 0 {
		return strings.TrimSpace(strings.TrimSpace(r.Foreign[:i]) + comment + " " + strings.TrimSpace(r.Foreign[i:]))
	}
	return r.Foreign + comment
}

// WriteIPSets writes sets as `ipset save` does; `ipset restore` takes it.
func WriteIPSets(out io.Writer, all []*Set, o TextOptions) error {
	w := bufio.NewWriter(out)
	for _, s := range all {
		family := ""
		if s.Family != 0 {
			family = " family " + either(s.Family == model.IPv6, "inet6", "inet")
		}
		fmt.Fprintf(w, "create %s %s%s%s\n", s.Name, s.Type, family, o.note(s))
		switch o.Elements {
		case CountOnly:
			fmt.Fprintf(w, "# elements: %d\n", len(s.Elements)+len(s.Foreign))
		case Full:
			for _, e := range s.Elements {
				fmt.Fprintf(w, "add %s %s%s\n", s.Name, ipsetMember(e), o.note(e))
			}
			for _, text := range s.Foreign {
				fmt.Fprintf(w, "add %s %s\n", s.Name, text)
			}
		}
	}
	return w.Flush()
}

// ipsetMember writes a member as ipset does.
func ipsetMember(e Element) string {
	text := nftPrefix(e.Prefix)
	if e.Protocol != model.AnyProtocol {
		text += fmt.Sprintf(",%s:%d", nftProtocol(e.Protocol), e.Port)
	}
	return text
}

// WriteFlows writes flows as `ovs-ofctl add-flows` takes them.
func WriteFlows(out io.Writer, all []*Flow, o TextOptions) error {
	w := bufio.NewWriter(out)
	for _, f := range all {
		if o.Counters {
			fmt.Fprintf(w, "n_packets=%d,n_bytes=%d,", f.Packets, f.Bytes)
		}
		fmt.Fprintf(w, "cookie=%#x,%s%s\n", f.Cookie, f, o.note(f))
	}
	return w.Flush()
}
