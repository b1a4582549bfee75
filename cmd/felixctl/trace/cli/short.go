package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/model"
)

// Bounds of a line of --short, and of the lines of the reason.
const (
	shortWidth  = 80
	reasonLines = 2
)

// printShort prints of each result the verdict, the rule of each end, and the reason: at most six lines of shortWidth unless names are long.
func printShort(w io.Writer, results []*result) error {
	t := &text{style: terminal.StyleFor(w)}
	for _, r := range results {
		t.short(r)
	}
	_, err := io.WriteString(w, t.String())
	return err
}

func (t *text) short(r *result) {
	verdict := t.style.Good("ALLOWED")
	if r.Verdict != allowed {
		verdict = t.style.Bad("DENIED")
	}
	port := model.PortRange{Protocol: r.Packet.Protocol, First: r.Packet.Port, Last: r.Packet.Port}.String()
	fmt.Fprintf(t, "%s  %s -> %s %s\n", verdict, r.From, r.To, port)
	if r.Policies != nil {
		t.line("egress: "+shortEnd(r.Policies.Egress), 0)
		t.line("ingress: "+shortEnd(r.Policies.Ingress), 0)
	}
	t.line("reason: "+r.Why, reasonLines)
	switch n := len(r.Notes); {
	case r.Disagreement != "" && r.Because == "":
		t.line("DISAGREEMENT of the ways of looking (see it without --short)", 0)
	case r.Because != "":
		t.line("not as the policies say, because "+r.Because, 1)
	case n > 0:
		t.line(fmt.Sprintf("notes: %d, the first: %s", n, r.Notes[0]), 1)
	}
}

// shortEnd is the verdict of an end with the rule that decides, or the policies that isolate the pod.
func shortEnd(e trace.End) string {
	word := "denied"
	if e.Allowed {
		word = "allowed"
	}
	switch {
	case e.Rule != "":
		return word + " by " + e.Policy + " " + model.TitledRule(e.Rule, e.RuleName)
	case !e.Allowed && len(e.Isolating) > 1:
		return fmt.Sprintf("%s, no rule of %s and %d more allows it", word, e.Isolating[0], len(e.Isolating)-1)
	case !e.Allowed && len(e.Isolating) > 0:
		return word + ", no rule of " + e.Isolating[0] + " allows it"
	}
	return word + ", " + e.Why
}

// line writes an indented text in lines of shortWidth, of which it cuts those beyond most; 0 for all.
func (t *text) line(text string, most int) {
	var lines []string
	for _, word := range strings.Fields(text) {
		if last := len(lines) - 1; last >= 0 && len(lines[last])+1+len(word) <= shortWidth-len("    ")-len(" ...") {
			lines[last] += " " + word
			continue
		}
		lines = append(lines, word)
	}
	for i, l := range lines {
		if most > 0 && i == most-1 && len(lines) > most {
			fmt.Fprintf(t, "%s%s ...\n", strings.Repeat("  ", 1+min(i, 1)), l)
			return
		}
		fmt.Fprintf(t, "%s%s\n", strings.Repeat("  ", 1+min(i, 1)), l)
	}
}
