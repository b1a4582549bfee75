package policytest

import (
	"fmt"
	"io"
	"strings"

	"github.com/felixlike/felixlike/cmd/felixctl/preview"
	"github.com/felixlike/felixlike/internal/printable"
	"github.com/felixlike/felixlike/internal/terminal"
)

const (
	// width is that of all lines but those with longer words.
	width = 80
	// shown bounds the undecided rules in the text.
	shown = 20
)

// Holds reports whether all expectations hold.
func (r *Result) Holds() bool {
	failed, _ := count(r.Tests...)
	return failed == 0
}

// count returns the numbers of expectations that do not hold, and of all.
func count(tests ...TestResult) (failed, all int) {
	for _, t := range tests {
		for _, e := range t.Expectations {
			if all++; !e.Holds {
				failed++
			}
		}
	}
	return failed, all
}

// Why says what is instead of what was expected.
func (e *Expectation) Why() string {
	if e.Fault != "" {
		return e.Fault
	}
	text := e.Against[0].String()
	if more := len(e.Against) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more: -o json)", more)
	}
	return text
}

// String says which packets have which verdict, and why.
func (a *Against) String() string {
	ports := strings.Join(a.Ports, " ")
	if ports == "all" {
		ports = "on all ports"
	}
	return fmt.Sprintf("%s -> %s %s is %s: %s", a.From, a.To, ports, a.Verdict, a.Because)
}

// Print prints a result for people.
func Print(w io.Writer, r *Result) error {
	var out strings.Builder
	style := terminal.StyleFor(w)
	for _, t := range r.Tests {
		for _, e := range t.Expectations {
			if !e.Holds {
				wrapped(&out, style.Bad("FAIL")+" ", fmt.Sprintf("%s:%d: expected %q, but %s", t.File, e.Line, e.Text, e.Why()))
			}
		}
	}
	for _, note := range r.Notes {
		wrapped(&out, "note: ", note)
	}
	for i, rule := range r.Coverage.Undecided {
		if i == shown {
			fmt.Fprintf(&out, "and %d more rules (-o json has all)\n", len(r.Coverage.Undecided)-shown)
			break
		}
		verb := " is"
		if strings.HasPrefix(rule, "the isolation") {
			verb = ", which has no rules, is"
		}
		wrapped(&out, "", rule+verb+" decided by no test")
	}
	failed, all := count(r.Tests...)
	fmt.Fprintf(&out, "%d of %s hold in %s; %d of %s decide in a test\n", all-failed,
		preview.Count(all, "expectation"), preview.Count(len(r.Tests), "test"), r.Coverage.Decided, preview.Count(r.Coverage.Rules, "rule"))
	_, err := io.WriteString(w, out.String())
	return err
}

// wrapped writes a text in lines, of which all but the first are indented.
func wrapped(out *strings.Builder, begin, text string) {
	out.WriteString(begin)
	column := 4 // FAIL has colours
	for i, word := range strings.Fields(printable.String(text)) {
		length := 1 + len([]rune(word))
		if i > 0 && column+length > width {
			word, column = "\n  "+word, 1
		} else if i > 0 {
			word = " " + word
		}
		column += length
		out.WriteString(word)
	}
	out.WriteString("\n")
}
