package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/model"
)

// text prints results for people.
type text struct {
	strings.Builder
	style terminal.Style
	// all also prints the rules that did not decide.
	all bool
}

func printResults(w io.Writer, results []*result, all bool) error {
	t := &text{style: terminal.StyleFor(w), all: all}
	for i, r := range results {
		if i > 0 {
			t.WriteString("\n")
		}
		t.result(r)
	}
	_, err := io.WriteString(w, t.String())
	return err
}

func (t *text) result(r *result) {
	fmt.Fprintf(t, "%s -> %s   %s, %s\n", t.style.Bold(r.From), t.style.Bold(r.To), r.Packet, connText(r.Packet.Conn))
	if r.Service != "" && r.Policies != nil {
		fmt.Fprintf(t, "to the Service %s: this is the packet once its destination has been translated to this endpoint\n", r.Service)
	}
	verdict := t.style.Good("ALLOWED")
	if r.Verdict != "allowed" {
		verdict = t.style.Bad("DENIED")
	}
	fmt.Fprintf(t, "%s  %s\n", verdict, r.Why)
	for _, n := range r.Notes {
		fmt.Fprintf(t, "note: %s\n", n)
	}
	if r.Policies != nil { // else no endpoint gets it
		t.policies(r.Policies)
	}
	for _, p := range r.Programmed {
		t.path(p)
	}
	if r.Live != nil {
		t.live(r)
	}
	t.agreement(r)
}

func connText(c trace.Conn) string {
	switch c {
	case trace.New:
		return "new connection"
	case trace.Allowed:
		return "of a connection that was allowed"
	case trace.Answer:
		return "answer in a connection that was allowed"
	case trace.Reopened:
		return "new connection from the ports of one that was allowed"
	case trace.Unjudged:
		return "of a connection that came to be without policy"
	case trace.Related:
		return "error about a connection that was allowed"
	}
	return "of no connection (invalid)"
}

// policies prints the verdict of the Kubernetes objects.
func (t *text) policies(j *trace.Judgement) {
	fmt.Fprintf(t, "\n%s\n", t.style.Head("By the policies"))
	t.end("egress of", j.Egress)
	t.end("ingress of", j.Ingress)
}

func (t *text) end(what string, e trace.End) {
	word := "allowed"
	if !e.Allowed {
		word = t.style.Bad("denied")
	}
	why := e.Why
	if e.Rule != "" {
		why = e.Policy + " " + model.TitledRule(e.Rule, e.RuleName)
	}
	fmt.Fprintf(t, "  %s %s: %s, %s\n", what, e.Who, word, why)
	for _, a := range e.Asked {
		if e.Allowed && !a.Allows && !t.all {
			continue
		}
		says := "no: "
		if a.Allows {
			says = "yes: "
		}
		fmt.Fprintf(t, "    %s  %s\n", strings.TrimSpace(a.Policy+" "+a.Rule), t.style.Faint(says+a.Because))
	}
}

// path prints the packet's path through the state of a backend.
func (t *text) path(p programmed) {
	head := "By programmed state (" + p.Backend + ")"
	if p.Wanted {
		head = "By the desired state of " + p.Backend
	}
	fmt.Fprintf(t, "\n%s\n", t.style.Head(head))
	t.steps(p.Path.Steps)
	fmt.Fprintf(t, "  => %s\n", t.fate(p.Path.Opinion()))
}

func (t *text) fate(o trace.Opinion) string {
	if o.Through {
		return o.Why
	}
	return t.style.Bad("DENIED") + " " + o.Why
}

func (t *text) steps(steps []trace.Step) {
	node, place := "", ""
	for _, s := range steps {
		if s.Node != node {
			fmt.Fprintf(t, "  %s\n", t.style.Bold(s.Node))
			node, place = s.Node, ""
		}
		if s.Place != place && s.Table != "" {
			fmt.Fprintf(t, "    %s\n", s.Place)
			place = s.Place
		}
		t.step(s)
	}
}

func (t *text) step(s trace.Step) {
	if s.Table == "" {
		fmt.Fprintf(t, "    %s: %s\n", s.Place, s.Effect)
		return
	}
	effect := s.Effect
	if strings.HasPrefix(effect, "drop") {
		effect = t.style.Bad(effect)
	}
	number := ""
	if s.Number > 0 {
		number = fmt.Sprintf(" #%d", s.Number)
	}
	fmt.Fprintf(t, "      %s%s  %s  -> %s\n", s.Table, number, t.style.Faint(shortened(conditions(s), t.all)), effect)
	behind := s.Comment
	if s.Policy != "" {
		behind = strings.TrimSpace(s.Policy + " " + model.TitledRule(s.PolicyRule, s.RuleName))
	}
	if behind != "" {
		fmt.Fprintf(t, "          %s\n", behind)
	}
	for _, m := range s.Sets {
		fmt.Fprintf(t, "          %s\n", membershipText(m))
	}
	for _, m := range s.Missed {
		fmt.Fprintf(t, "          %s no: %s\n", cmp.Or(strings.TrimSpace(m.Policy+" "+model.TitledRule(m.PolicyRule, m.RuleName)), m.Rule), m.Because)
	}
}

// conditions is the rule without its action, which the effect says.
func conditions(s trace.Step) string {
	if match, _, found := strings.Cut(s.Rule, " actions="); found {
		return match
	}
	for _, action := range []string{s.Effect, "goto ", "jump ", "accept", "drop", "return"} {
		if at := strings.LastIndex(s.Rule, action); action != "" && at >= 0 {
			return cmp.Or(strings.TrimSpace(s.Rule[:at]), "any")
		}
	}
	return s.Rule
}

// longest bounds the text of a rule without --all.
const longest = 110

func shortened(s string, all bool) string {
	if all || len(s) <= longest {
		return s
	}
	return s[:longest-3] + "..."
}

func membershipText(m trace.Membership) string {
	text := m.Member
	if m.Owner != "" {
		text += " (" + m.Owner + ")"
	}
	text += " is in " + m.Set
	if m.About != "" {
		text += " (" + m.About + ")"
	}
	return text
}

func (t *text) live(r *result) {
	fmt.Fprintf(t, "\n%s\n", t.style.Head("By a real packet"))
	t.steps(r.Live.Steps)
	if t.all {
		for _, line := range r.Live.Raw {
			fmt.Fprintf(t, "    %s\n", t.style.Faint(line))
		}
	}
	fmt.Fprintf(t, "  => %s\n", t.fate(r.Live.Opinion))
}

func (t *text) agreement(r *result) {
	ways := "policies and programmed state"
	if r.Live != nil && r.Live.Known {
		ways = "policies, programmed state, and the packet"
	}
	switch {
	case r.Disagreement == "" && r.Policies == nil:
	case r.Disagreement == "":
		fmt.Fprintf(t, "\n%s: %s.\n", t.style.Good("Agreed"), ways)
	case r.Because != "":
		fmt.Fprintf(t, "\nNot as the policies say: %s.\nThat is because %s.\n", r.Disagreement, r.Because)
	default:
		fmt.Fprintf(t, "\n%s: %s.\nThis is a bug of felixlike, or another program changed the rules: felixctl status shows repairs.\n",
			t.style.Bad("DISAGREEMENT"), r.Disagreement)
	}
}
