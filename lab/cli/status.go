package cli

import (
	"fmt"
	"io"
	"slices"

	"github.com/felixlike/felixlike/lab"
)

func printStatus(w io.Writer, s lab.Status) error {
	nodes := [][]string{{"NODE", "ADDRESSES", "NETNS", "AGENT", "BACKEND", "REVISION", "IN SYNC", "POLICIES", "GROUPS", "SET ASIDE", "REPAIRS", "PROBLEMS", "PROBES AND METRICS"}}
	for _, n := range s.Nodes {
		agent := "down"
		if n.AgentPID != 0 {
			agent = fmt.Sprintf("pid %d", n.AgentPID)
		}
		row := []string{n.Name, n.Addresses, n.Namespace, agent}
		if a := n.Agent; a != nil {
			row = append(row, a.Backend, fmt.Sprintf("%d/%d", a.Programmed, a.Observed), fmt.Sprint(a.InSync),
				fmt.Sprint(len(a.Policies)), fmt.Sprint(a.Groups), fmt.Sprint(len(a.Quarantined)), fmt.Sprint(a.Repairs.Total), fmt.Sprint(len(a.Problems)), a.Health)
		} else {
			row = append(row, n.Error)
		}
		nodes = append(nodes, row)
	}
	if err := printTable(w, nodes); err != nil {
		return err
	}
	if i := slices.IndexFunc(s.Nodes, func(n lab.NodeStatus) bool { return n.Agent != nil && n.Agent.Health != "" }); i >= 0 {
		n := s.Nodes[i]
		if _, err := fmt.Fprintf(w, "\nProbes and metrics of %s: ip netns exec %s curl -s %s/readyz (or /healthz, /metrics)\n", n.Name, n.Namespace, n.Agent.Health); err != nil {
			return err
		}
	}
	pods := [][]string{{"POD", "NODE", "STATE", "ADDRESSES", "NETNS"}}
	for _, p := range s.Pods {
		pods = append(pods, []string{p.Pod, p.Node, p.State, p.Addresses, p.Namespace})
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	if err := printTable(w, pods); err != nil {
		return err
	}
	for _, n := range s.Nodes {
		if n.Agent == nil {
			continue
		}
		for _, p := range n.Agent.Problems {
			if _, err := fmt.Fprintf(w, "\n%s: %s\n", n.Name, p.Error()); err != nil {
				return err
			}
		}
	}
	return nil
}
