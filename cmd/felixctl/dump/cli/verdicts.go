package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/compare"
	"github.com/felixlike/felixlike/cmd/felixctl/prove"
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
type verdicts struct {
	compare.Trials
	// Sample is set if only the packets that were followed are compared, and unset if it is proved that no packet tells the sides apart.
	Sample bool `json:"sample"`
	// NotProved says why it is a sample although no verdict differs in it.
	NotProved []string `json:"notProved,omitempty"`
	// Assumed are the assumptions of the proof that may not hold.
	Assumed []string `json:"assumed,omitempty"`
	// Differs is what the proof has found besides the sample.
	Differs []prove.Difference `json:"differs,omitempty"`
}

func verdictsOf(ctx context.Context, a, b *side, o compare.Options) (report, error) {
	return verdictsWithin(ctx, a, b, o, proveTime)
}

// verdictsWithin bounds the time of the proof; without any there is no proof.
func verdictsWithin(ctx context.Context, a, b *side, o compare.Options, limit time.Duration) (report, error) {
	before, after := a.modelOr(b), b.modelOr(a)
	if before == nil || after == nil {
		return nil, errNoModel
	}
	states := []*dump.State{a.state, b.state}
	v := verdicts{Trials: compare.Verdicts(newFollower(a, before), newFollower(b, after), compare.EndsOf(states, before, after), compare.PortsOf(states, before, after)), Sample: true}
	if v.different() || limit == 0 {
		return v, nil
	}
	return v, v.prove(ctx, [2]*side{a, b}, o.OnlyOurs, limit)
}

const (
	// proveTime bounds the proof.
	proveTime = 20 * time.Second
	// printTime is left of --timeout after the proof: the sample is an answer, too.
	printTime = time.Second
)

// prove notes whether all packets have the same verdict as in the sample, in which none differs.
func (v *verdicts) prove(ctx context.Context, both [2]*side, onlyOurs bool, limit time.Duration) error {
	if both[0].busy || both[1].busy {
		v.NotProved = []string{"the agent was programming all the while"}
		return nil
	}
	reason := fmt.Sprintf("the proof takes longer than %s", limit)
	if end, bounded := ctx.Deadline(); bounded && time.Until(end)-printTime < limit {
		limit, reason = time.Until(end)-printTime, "the proof does not end within --timeout"
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// On an agent's node, the proof takes one processor, as in verify: onResync.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	c, err := certify(limited, both, onlyOurs)
	var refused *prove.NotProved
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case limited.Err() != nil:
		v.NotProved = []string{reason}
	case errors.As(err, &refused):
		v.NotProved = []string{refused.Place + ": " + refused.Reason}
	case err != nil:
		return err
	default:
		// Rules of other programs that differ behind felixlike's are assumed to do the same.
		v.Assumed = slices.DeleteFunc(c.Assumed, func(text string) bool { return !strings.Contains(text, prove.TheyDiffer) })
		v.Sample, v.NotProved, v.Differs = !c.Equal || len(v.Assumed) > 0, c.NotProved, c.Differences
	}
	return nil
}

// different counts unknown verdicts, too: they may differ.
func (v verdicts) different() bool { return len(v.Changed)+len(v.Unknown)+len(v.Differs) > 0 }

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
	case !v.Sample:
		return fmt.Sprintf("no verdict differs: proved for all packets (felixctl prove has the certificate); %d were followed as well", v.Packets)
	case len(v.Changed) == 0:
		text += "no verdict differs among these (a sample of all packets)"
	default:
		text += fmt.Sprintf("verdicts that differ: %d, pairs of ends: %d (a sample of all packets)", len(v.Changed), len(pairs))
	}
	if n := len(v.Unknown); n > 0 {
		text += fmt.Sprintf("; unknown: %d", n)
	}
	if v.Left > 0 {
		text += fmt.Sprintf("; %d more were left out", v.Left)
	}
	if len(v.Differs) > 0 {
		d := v.Differs[0]
		text += fmt.Sprintf("\nbut felixctl prove tells the sides apart, for example: %s (%s, connection: %s): before: %s, after: %s", d.Packet, d.Way, d.Connection, d.A, d.B)
	}
	for _, why := range v.NotProved {
		text += "\nnot proved: " + why
	}
	for _, what := range v.Assumed {
		text += "\nassumed: " + what
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
