package report

import (
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/model"
)

// StagedNames returns the names of staged policies.
func StagedNames(s control.Staged) (names []string) {
	for _, p := range s.Policies {
		names = append(names, p.Policy)
	}
	return names
}

// staged prints the number of staged policies, and of connections that they would have denied.
func (t *text) staged(s control.Staged) {
	denied := uint64(0)
	for _, p := range s.Policies {
		denied += p.Denied
	}
	fmt.Fprintf(t, "staged policies: %d, not enforced   connections that they would have denied: %d\n", len(s.Policies), denied)
}

// PrintStaged prints what the staged policies of nodes would have denied: a line a policy and node, and one a pod.
func PrintStaged(w io.Writer, format terminal.Output, nodes ...control.Staged) error {
	table := terminal.NewTable(format.Style(w), "STAGED POLICY", "NODE", "EVALUATED", "WOULD DENY", "FIRST")
	rows, note := 0, ""
	for _, n := range nodes {
		if n.NotEvaluated != "" {
			note += fmt.Sprintf("%s: no connection is evaluated: %s\n", n.Node, n.NotEvaluated)
		}
		if n.Last != nil && n.Last.Error != "" {
			note += fmt.Sprintf("%s: not all connections are evaluated: %s\n", n.Node, n.Last.Error)
		}
		for _, p := range n.Policies {
			rows++
			table.Row(p.Policy, n.Node, p.Evaluated, p.Denied, "in "+time.Since(p.Since).Round(time.Second).String())
			for _, pod := range p.Pods {
				table.Row("  "+pod.Pod, "", "", pod.Denied, stagedConnection(pod.First))
			}
			if p.Others > 0 {
				table.Row("  other pods", "", "", p.Others, "")
			}
		}
	}
	if rows == 0 {
		_, err := fmt.Fprintln(w, "no staged policy selects a pod")
		return err
	}
	_, err := fmt.Fprintf(w, "%s\n%s", table, note)
	return err
}

// stagedConnection has its ends, and the time.
func stagedConnection(c control.StagedConnection) string {
	to := c.Destination.String()
	switch {
	case c.Protocol.IsICMP():
		kind, code := model.ICMPTypeAndCode(c.Port)
		to = fmt.Sprintf("%s type %d code %d", to, kind, code)
	case c.Port != 0:
		to = netip.AddrPortFrom(c.Destination, c.Port).String()
	}
	return fmt.Sprintf("%s -> %s %s, %s", c.Source, to, c.Protocol, c.At.Format(time.TimeOnly))
}
