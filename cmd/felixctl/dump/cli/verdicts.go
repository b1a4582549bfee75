package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/compare"
	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/cmd/felixctl/trace/cluster"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/model"
)

// follower judges packets by following them through the state of a side.
type follower struct{ site *trace.Site }

func newFollower(s *side, m *control.Model) follower { return follower{cluster.SiteOf(m, s.state)} }

// Judge implements compare.Judge.
func (f follower) Judge(p compare.Packet) (bool, string, error) {
	path, err := trace.Follow(trace.Packet{
		Source: p.Source, Destination: p.Destination, Protocol: p.Protocol, Port: p.Port, Conn: trace.New,
	}, []*trace.Site{f.site}, nil)
	if err != nil {
		return false, "", err
	}
	o := path.Opinion()
	if policies := path.Policies(); len(policies) > 0 {
		o.Why += " (" + strings.Join(policies, ", ") + ")"
	}
	return o.Through, o.Why, nil
}

// verdicts is the report of that view.
type verdicts struct{ compare.Trials }

func verdictsOf(_ context.Context, a, b *side, _ compare.Options) (report, error) {
	before, after := a.modelOr(b), b.modelOr(a)
	if before == nil || after == nil {
		return nil, errNoModel
	}
	states := []*dump.State{a.state, b.state}
	return verdicts{compare.Verdicts(newFollower(a, before), newFollower(b, after), compare.EndsOf(states, before, after), compare.PortsOf(states, before, after))}, nil
}

// different counts unknown verdicts, too: they may differ.
func (v verdicts) different() bool { return len(v.Changed)+len(v.Unknown) > 0 }

func through(o compare.Opinion) string {
	switch {
	case o.Unknown != "":
		return "unknown"
	case o.Through:
		return "allowed"
	}
	return "denied"
}

func portOf(v compare.Verdict) string {
	if v.ICMP != nil {
		message := model.ICMPMessage(v.ICMP.Type, v.ICMP.Code)
		return model.PortRange{Protocol: v.Protocol, First: message, Last: message}.String()
	}
	if v.Port == 0 {
		return v.Protocol.String()
	}
	return fmt.Sprintf("%d/%s", v.Port, v.Protocol)
}

// row is the line of a verdict; the reason is that of the side that denies.
func row(v compare.Verdict) []any {
	why := v.After.Why
	switch {
	case v.Before.Unknown != "" || v.After.Unknown != "":
		why = cmp.Or(v.Before.Unknown, v.After.Unknown)
	case !v.Before.Through:
		why = "before: " + v.Before.Why
	}
	return []any{v.From, v.To, "IPv" + model.FamilyOf(v.Source).String(), portOf(v), through(v.Before), through(v.After), why}
}

// rows are the lines of all verdicts; a change that both families share has one line.
func (v verdicts) rows() [][]any {
	type key [5]any
	const family = 2
	at := map[key]int{}
	var all [][]any
	for _, one := range slices.Concat(v.Changed, v.Unknown) {
		r := row(one)
		k := key{r[0], r[1], r[3], r[4], r[5]}
		if i, known := at[k]; known {
			if seen := fmt.Sprint(all[i][family]); !strings.Contains(seen, fmt.Sprint(r[family])) {
				all[i][family] = seen + ", " + fmt.Sprint(r[family])
			}
			continue
		}
		at[k] = len(all)
		all = append(all, r)
	}
	return all
}

func (v verdicts) summary() string {
	pairs := map[string]bool{}
	for _, c := range v.Changed {
		pairs[c.From+" "+c.To] = true
	}
	text := fmt.Sprintf("%d packets were followed on both sides: ", v.Packets)
	switch {
	case len(v.Changed) == 0:
		text += "no verdict differs among these (a sample of all packets)"
	default:
		text += fmt.Sprintf("verdicts that differ: %d, pairs of ends: %d", len(v.Changed), len(pairs))
	}
	if n := len(v.Unknown); n > 0 {
		text += fmt.Sprintf("; unknown: %d", n)
	}
	if v.Left > 0 {
		text += fmt.Sprintf("; %d more were left out", v.Left)
	}
	return text
}

func (v verdicts) text(w io.Writer, style terminal.Style) error {
	if len(v.Changed)+len(v.Unknown) > 0 {
		t := terminal.NewTable(style, "FROM", "TO", "IP", "PORT", "BEFORE", "AFTER", "WHY")
		for _, r := range v.rows() {
			t.Row(r...)
		}
		if _, err := fmt.Fprintf(w, "%s\n\n", t); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, v.summary())
	return err
}

func (v verdicts) markdown(w io.Writer) error {
	var b strings.Builder
	if len(v.Changed)+len(v.Unknown) > 0 {
		b.WriteString("| from | to | IP | port | before | after | why |\n|---|---|---|---|---|---|---|\n")
		for _, r := range v.rows() {
			for _, cell := range r {
				fmt.Fprintf(&b, "| %s ", strings.ReplaceAll(fmt.Sprint(cell), "|", "\\|"))
			}
			b.WriteString("|\n")
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%s\n", v.summary())
	_, err := io.WriteString(w, b.String())
	return err
}
