// Package report prints the agent's status and configuration for people
// (aligned tables) and programs (JSON, YAML). It holds no state and does no
// I/O but writing; it is tested by its text.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
)

// Config prints settings with their origins.
func Config(w io.Writer, rows []config.Row, format string) error {
	return render(w, rows, format, func() {
		t := newTable(w, "setting", "value", "from")
		for _, r := range rows {
			t.AppendRow(table.Row{r.Key, r.Value, r.Origin})
		}
		t.Render()
	})
}

// Status prints an agent's status.
func Status(w io.Writer, s control.Status, format string) error {
	return render(w, s, format, func() {
		fmt.Fprintf(w, "node %s   backend %s   datastore %s   pid %d   up %s\n", s.Node, s.Backend, s.Datastore, s.PID,
			time.Since(s.StartedAt).Round(time.Second))
		fmt.Fprintf(w, "in sync %s   revision %d programmed of %d   last apply %s in %s\n", yesNo(s.InSync), s.Programmed, s.Observed,
			s.LastApply.At.Format(time.TimeOnly), s.LastApply.Duration.Round(10*time.Microsecond))
		health := s.Health
		if health == "" {
			health = "off"
		}
		fmt.Fprintf(w, "version %s   probes and metrics %s\n", s.AgentVersion, health)
		if s.LastApply.Error != "" {
			fmt.Fprintf(w, "LAST APPLY FAILED: %s\n", s.LastApply.Error)
		}
		for _, r := range s.Running {
			fmt.Fprintf(w, "applying %s for %s\n", r.Stage, time.Since(r.Since).Round(10*time.Microsecond))
		}
		fmt.Fprintf(w, "writes since start: nftables %d, openflow %d, netlink %d, ovsdb %d, conntrack %d   groups %d\n\n",
			s.Writes["nftables"], s.Writes["openflow"], s.Writes["netlink"], s.Writes["ovsdb"], s.Writes["conntrack"], s.Groups)
		endpoints(w, s)
		policies(w, s)
		quarantined(w, s)
		repairs(w, s)
		problems(w, s)
	})
}

func endpoints(w io.Writer, s control.Status) {
	if len(s.Endpoints) == 0 {
		fmt.Fprintln(w, "no pods on this node")
		return
	}
	closed := false
	t := newTable(w, "pod", "state", "interface", "addresses", "ingress", "egress")
	for _, e := range s.Endpoints {
		closed = closed || e.Reason != ""
		t.AppendRow(table.Row{
			e.Namespace + "/" + e.Name, e.State, e.Interface, strings.Join(e.Addresses, " "),
			open(e.IngressPolicies), open(e.EgressPolicies),
		})
	}
	t.Render()
	if !closed {
		return
	}
	fmt.Fprintln(w, "\nclosed pods, whose traffic is dropped:")
	for _, e := range s.Endpoints {
		if e.Reason != "" {
			fmt.Fprintf(w, "  %s/%s: %s\n", e.Namespace, e.Name, e.Reason)
		}
	}
}

func policies(w io.Writer, s control.Status) {
	if len(s.Policies) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := newTable(w, "policy", "tier", "ingress rules", "egress rules", "pods here")
	for _, p := range s.Policies {
		name := p.Name
		if p.Namespace != "" {
			name = p.Namespace + "/" + p.Name
		}
		t.AppendRow(table.Row{name, p.Tier, p.IngressRules, p.EgressRules, p.Endpoints})
	}
	t.Render()
}

// quarantined prints what was set aside: one line of facts and one of reason
// each, since reasons are long.
func quarantined(w io.Writer, s control.Status) {
	if len(s.Quarantined) == 0 {
		return
	}
	fmt.Fprintf(w, "\nset aside (%d); everything else is programmed:\n", len(s.Quarantined))
	t := newTable(w, "  object", "of", "pods closed", "since", "tries", "next try")
	for _, q := range s.Quarantined {
		t.AppendRow(table.Row{
			"  " + q.Stage + " " + q.Kind + " " + q.Name, owners(q), len(q.Pods), q.Since.Format(time.TimeOnly), q.Attempts, q.NextTry.Format(time.TimeOnly),
		})
	}
	t.Render()
	for _, q := range s.Quarantined {
		what := q.Name
		if q.Rule != "" {
			what += ", " + q.Rule
		}
		fmt.Fprintf(w, "  %s: %s\n", what, q.Reason)
	}
}

// owners names what a quarantined object was made of.
func owners(q control.Quarantined) string {
	switch len(q.Owners) {
	case 0:
		return q.Description
	case 1:
		return q.Owners[0].String()
	}
	return fmt.Sprintf("%s and %d more", q.Owners[0], len(q.Owners)-1)
}

func repairs(w io.Writer, s control.Status) {
	if s.Repairs.Total == 0 {
		return
	}
	fmt.Fprintf(w, "\nforeign changes undone: %d since start; the newest:\n", s.Repairs.Total)
	t := newTable(w, "  at", "object", "what", "by", "took")
	for _, r := range s.Repairs.Last {
		by := r.By
		if by == "" {
			by = "unknown"
		}
		t.AppendRow(table.Row{
			"  " + r.At.Format(time.DateTime), r.Stage + " " + r.Kind + " " + r.Name, r.What, by, r.Took.Round(10 * time.Microsecond).String(),
		})
	}
	t.Render()
}

func problems(w io.Writer, s control.Status) {
	if len(s.Problems) == 0 {
		return
	}
	fmt.Fprintf(w, "\nproblems (%d):\n", len(s.Problems))
	for _, p := range s.Problems {
		fmt.Fprintf(w, "  %s\n", p.Error())
	}
}

// open says what a list of policies means to a direction.
func open(policies []string) string {
	if len(policies) == 0 {
		return "open"
	}
	return strings.Join(policies, " ")
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "NO"
}

func newTable(w io.Writer, header ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.AppendHeader(header)
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = 0
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	t.SetStyle(style)
	return t
}

func render(w io.Writer, value any, format string, text func()) error {
	switch format {
	case "text":
		text()
		return nil
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(value)
	case "yaml":
		b, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	}
	return fmt.Errorf("unknown output format %q: text, json or yaml", format)
}
