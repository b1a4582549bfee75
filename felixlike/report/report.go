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
		if s.LastApply.Error != "" {
			fmt.Fprintf(w, "LAST APPLY FAILED: %s\n", s.LastApply.Error)
		}
		fmt.Fprintf(w, "writes since start: nftables %d, openflow %d, netlink %d, ovsdb %d, conntrack %d   groups %d\n\n",
			s.Writes["nftables"], s.Writes["openflow"], s.Writes["netlink"], s.Writes["ovsdb"], s.Writes["conntrack"], s.Groups)
		endpoints(w, s)
		policies(w, s)
		problems(w, s)
	})
}

func endpoints(w io.Writer, s control.Status) {
	if len(s.Endpoints) == 0 {
		fmt.Fprintln(w, "no pods on this node")
		return
	}
	t := newTable(w, "pod", "state", "interface", "addresses", "ingress", "egress")
	for _, e := range s.Endpoints {
		t.AppendRow(table.Row{
			e.Namespace + "/" + e.Name, e.State, e.Interface, strings.Join(e.Addresses, " "),
			open(e.IngressPolicies), open(e.EgressPolicies),
		})
	}
	t.Render()
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
