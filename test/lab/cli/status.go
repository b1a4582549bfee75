package cli

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/internal/terminal"
)

// errDown makes the exit code say that something of the lab is down.
var errDown = fmt.Errorf("%w: an agent is down, out of sync, or has a problem", ErrDisagreement)

func (o *options) statusCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "Show nodes, agents and pods",
		Long: `Show nodes, agents and pods.

-o wide does not fit the tables to the terminal; -o name prints the names of nodes and pods.

Exit codes: 0 all agents answer, are in sync and have no problem; 1 some do not or
have one; 2 the command failed.`,
		Example: `  felixctl lab status
  felixctl lab status --name other -o name`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			status, err := o.client().Status(c.Context())
			if err != nil {
				return err
			}
			if o.output == terminal.Name {
				err = terminal.PrintNames(c.OutOrStdout(), endsOf(status, true))
			} else {
				err = o.output.Print(c.OutOrStdout(), status, func() error { return printStatus(c.OutOrStdout(), status, o.output) })
			}
			if err == nil && !healthy(status) {
				err = errDown
			}
			return err
		},
	}
	o.listFlag(c)
	return c
}

// errFaults makes the exit code say that objects are not programmed as written.
var errFaults = fmt.Errorf("%w: objects are not programmed as written", ErrDisagreement)

// printFaults prints, each once, the problems that agents report and the objects that
// they have quarantined. It returns errFaults if there are any.
func printFaults(w io.Writer, s labs.Status) error {
	var faults []string
	for _, n := range s.Nodes {
		if n.Agent == nil {
			faults = append(faults, n.Name+": "+n.Error)
			continue
		}
		for _, p := range n.Agent.Problems {
			faults = append(faults, p.Error())
		}
		for _, q := range n.Agent.Quarantined {
			text := fmt.Sprintf("%s %s is quarantined: %s", q.Kind, q.Name, q.Reason)
			if len(q.Pods) > 0 {
				text += "; closed: " + strings.Join(q.Pods, ", ")
			}
			faults = append(faults, text)
		}
	}
	slices.Sort(faults)
	faults = slices.Compact(faults)
	for _, f := range faults {
		if _, err := fmt.Fprintln(w, f); err != nil {
			return err
		}
	}
	if len(faults) > 0 {
		return errFaults
	}
	return nil
}

// healthy reports whether every agent answers, is in sync and has no problem.
func healthy(s labs.Status) bool {
	return !slices.ContainsFunc(s.Nodes, func(n labs.NodeStatus) bool {
		return n.Agent == nil || !n.Agent.InSync || len(n.Agent.Problems) > 0
	})
}

func printStatus(w io.Writer, s labs.Status, format terminal.Output) error {
	style := format.Style(w)
	var b strings.Builder
	nodes := terminal.NewTable(style, "NODE", "ADDRESSES", "AGENT", "BACKEND", "IN SYNC", "PROGRAMMED", "POLICIES", "QUARANTINED", "REPAIRS", "PROBLEMS")
	for _, n := range s.Nodes {
		nodes.Row(nodeRow(style, n)...)
	}
	fmt.Fprintln(&b, nodes)
	if len(s.Nodes) > 0 {
		b.WriteByte('\n')
		printHints(&b, style, s.Nodes)
	}
	if len(s.Pods) == 0 {
		fmt.Fprintf(&b, "\nno pods (felixctl lab apply -f FILE adds some)\n")
	} else {
		pods := terminal.NewTable(style, "POD", "NODE", "STATE", "ADDRESSES", "NETNS")
		for _, p := range s.Pods {
			pods.Row(p.Pod, p.Node, p.State, joined(p.Addresses), p.Namespace)
		}
		fmt.Fprintf(&b, "\n%s\n", pods)
	}
	for _, n := range s.Nodes {
		if n.Agent == nil {
			fmt.Fprintf(&b, "\n%s: %s (see %s)\n", n.Name, n.Error, n.LogFile)
			continue
		}
		for _, p := range n.Agent.Problems {
			fmt.Fprintf(&b, "\n%s: %s\n", n.Name, p.Error())
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func nodeRow(style terminal.Style, n labs.NodeStatus) []any {
	agent := style.Bad("down")
	if n.AgentPID != 0 {
		agent = fmt.Sprintf("pid %d", n.AgentPID)
	}
	row := []any{n.Name, joined(n.Addresses), agent}
	a := n.Agent
	if a == nil {
		return append(row, "?", "?", "?", "?", "?", "?", "?")
	}
	backend := a.Backend
	if a.Handover != nil {
		backend += " -> " + a.Handover.To
	}
	sync := "yes"
	if !a.InSync {
		sync = style.Bad("NO")
	}
	return append(row, backend, sync, fmt.Sprintf("%d of %d", a.Programmed, a.Observed),
		len(a.Policies), len(a.Quarantined), a.Repairs.Total, len(a.Problems))
}

// printHints prints the ways to enter the nodes.
func printHints(w io.Writer, style terminal.Style, nodes []labs.NodeStatus) {
	hints := terminal.NewTable(style, "NODE", "NETNS", "CONTROL SOCKET", "LOG", "PROBES AND METRICS")
	for _, n := range nodes {
		health := ""
		if n.Agent != nil {
			health = n.Agent.Health
		}
		hints.Row(n.Name, n.Namespace, n.ControlSocket, n.LogFile, health)
	}
	n := nodes[0]
	fmt.Fprintf(w, "%s\n\nWith %s, for example:\n", hints, n.Name)
	fmt.Fprintf(w, "  felixctl backend set iptables-nft --socket %s\n", n.ControlSocket)
	fmt.Fprintf(w, "  felixctl status --socket %s\n", n.ControlSocket)
	if n.Agent != nil && n.Agent.Health != "" {
		fmt.Fprintf(w, "  ip netns exec %s curl -s %s/readyz     (or /healthz, /metrics)\n", n.Namespace, n.Agent.Health)
	}
}

func joined(addresses []netip.Addr) string {
	texts := make([]string, len(addresses))
	for i, a := range addresses {
		texts[i] = a.String()
	}
	return strings.Join(texts, " ")
}
