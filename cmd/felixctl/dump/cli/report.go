package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/felixlike/felixlike/cmd/felixctl/dump/compare"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/names"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// structure is the report of that view.
type structure []compare.Object

func structureOf(_ context.Context, a, b *side, o compare.Options) (report, error) {
	return structure(compare.Structure(sidesOf(a, b, o), o)), nil
}

// PrintStructure prints differences as `felixctl diff` does.
func PrintStructure(w io.Writer, objects []compare.Object) error {
	return structure(objects).text(w, terminal.StyleFor(w))
}

func (s structure) different() bool { return len(s) > 0 }

// MarshalJSON writes an empty list and no null.
func (s structure) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Objects []compare.Object `json:"objects"`
	}{append([]compare.Object{}, s...)})
}

// sign is the mark in front of a change.
func sign(o compare.Op) string {
	switch o {
	case compare.Added:
		return "+"
	case compare.Removed:
		return "-"
	case compare.Moved:
		return ">"
	}
	return "~"
}

// title names an object.
func title(o *compare.Object) string {
	text := o.Kind + " " + o.Name
	if o.Kind == "flows" {
		text = "flows of table " + o.Name
		var number uint8
		if _, err := fmt.Sscan(o.Name, &number); err == nil {
			t, _ := pipeline.TableOf(number)
			o.Note = cmp.Or(o.Note, t.Name)
		}
	}
	if o.In != "" {
		text += " (" + o.In + ")"
	}
	return text
}

func (s structure) text(w io.Writer, style terminal.Style) error {
	if len(s) == 0 {
		_, err := fmt.Fprintln(w, "no difference")
		return err
	}
	var b strings.Builder
	for _, o := range s {
		name := title(&o)
		fmt.Fprintf(&b, "%s %s", sign(o.Op), style.Bold(name))
		if o.Note != "" {
			fmt.Fprintf(&b, "  %s", style.Faint("# "+o.Note))
		}
		b.WriteByte('\n')
		for _, c := range o.Changes {
			writeChange(&b, style, c)
		}
	}
	fmt.Fprintf(&b, "\n%s\n", s.summary())
	_, err := io.WriteString(w, b.String())
	return err
}

func writeChange(b *strings.Builder, style terminal.Style, c compare.Change) {
	note := ""
	if c.Note != "" {
		note = "  " + style.Faint("# "+c.Note)
	}
	switch c.Op {
	case compare.Edited:
		fmt.Fprintf(b, "    - %s\n    + %s%s\n", c.Before, c.After, note)
	case compare.Removed:
		fmt.Fprintf(b, "    - %s%s\n", c.Before, note)
	case compare.Moved:
		if c.Kind == "flow" {
			note = "  " + style.Faint("# before: "+c.Before) + note
		}
		fmt.Fprintf(b, "    > %s%s\n", c.After, note)
	default:
		fmt.Fprintf(b, "    + %s%s\n", c.After, note)
	}
}

// summary counts.
func (s structure) summary() string {
	type key struct {
		kind string
		op   compare.Op
	}
	counts := map[key]int{}
	for _, o := range s {
		if o.Kind != "flows" && o.Kind != "objects" {
			counts[key{strings.TrimPrefix(o.Kind, "ip"), o.Op}]++
		}
		for _, c := range o.Changes {
			counts[key{c.Kind, c.Op}]++
		}
	}
	var words []string
	for _, kind := range []string{"chain", "rule", "set", "map", "element", "flow", "object", "hook", "type"} {
		var parts []string
		for _, op := range []compare.Op{compare.Added, compare.Removed, compare.Edited, compare.Moved} {
			if n := counts[key{kind, op}]; n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", n, op))
			}
		}
		if len(parts) > 0 {
			words = append(words, kind+"s: "+strings.Join(parts, ", "))
		}
	}
	return strings.Join(words, "; ")
}

func (s structure) markdown(w io.Writer) error {
	var b strings.Builder
	if len(s) == 0 {
		b.WriteString("No difference.\n")
	}
	for _, o := range s {
		name := title(&o)
		fmt.Fprintf(&b, "### %s: %s\n\n", name, o.Op)
		if o.Note != "" {
			fmt.Fprintf(&b, "%s\n\n", o.Note)
		}
		if len(o.Changes) > 0 {
			b.WriteString("```diff\n")
			var plain strings.Builder
			for _, c := range o.Changes {
				writeChange(&plain, terminal.Style{}, c)
			}
			for line := range strings.Lines(plain.String()) {
				b.WriteString(strings.TrimPrefix(line, "    "))
			}
			b.WriteString("```\n\n")
		}
	}
	if len(s) > 0 {
		fmt.Fprintf(&b, "%s\n", s.summary())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// unified is the report of the view "text".
type unified struct {
	Diff string `json:"diff"`
}

func textOf(_ context.Context, a, b *side, o compare.Options) (report, error) {
	diff, err := compare.Text(sidesOf(a, b, o), o, a.title, b.title)
	return unified{string(diff)}, err
}

func (u unified) different() bool { return u.Diff != "" }

func (u unified) text(w io.Writer, _ terminal.Style) error {
	_, err := io.WriteString(w, cmp.Or(u.Diff, "no difference\n"))
	return err
}

func (u unified) markdown(w io.Writer) error {
	if u.Diff == "" {
		_, err := io.WriteString(w, "No difference.\n")
		return err
	}
	_, err := fmt.Fprintf(w, "```diff\n%s```\n", u.Diff)
	return err
}

// report is the result of a view.
type report interface {
	different() bool
	text(w io.Writer, style terminal.Style) error
	markdown(w io.Writer) error
}

// sidesOf makes two sides comparable.
func sidesOf(a, b *side, o compare.Options) compare.Sides {
	return compare.Sides{
		Before: compare.Canonical(a.state, o), After: compare.Canonical(b.state, o),
		NoteBefore: names.Of(a.modelOr(b)).Note, NoteAfter: names.Of(b.modelOr(a)).Note,
	}
}
