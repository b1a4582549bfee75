package policytest

import (
	"fmt"
	"io"
	"strings"

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
func (r *Result) Holds() bool { return r.failed() == 0 }

func (r *Result) failed() (n int) {
	for _, t := range r.Tests {
		for _, e := range t.Expectations {
			if !e.Holds {
				n++
			}
		}
	}
	return n
}

func (r *Result) total() (n int) {
	for _, t := range r.Tests {
		n += len(t.Expectations)
	}
	return n
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
	fmt.Fprintf(&out, "%d of %s hold in %s; %d of %s decide in a test\n", r.total()-r.failed(),
		count(r.total(), "expectation"), count(len(r.Tests), "test"), r.Coverage.Decided, count(r.Coverage.Rules, "rule"))
	_, err := io.WriteString(w, out.String())
	return err
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// wrapped writes a text in lines, of which all but the first are indented.
func wrapped(out *strings.Builder, begin, text string) {
	out.WriteString(begin)
	column := 0
	if begin != "" {
		column = 5
	}
	for i, word := range strings.Fields(printable.String(text)) {
		switch length := len([]rune(word)); {
		case i == 0:
			column += length
		case column+1+length > width:
			out.WriteString("\n  ")
			column = 2 + length
		default:
			out.WriteString(" ")
			column += 1 + length
		}
		out.WriteString(word)
	}
	out.WriteString("\n")
}
