package cli

import (
	"fmt"
	"io"

	"github.com/felixlike/felixlike/lab"
)

func printStatus(w io.Writer, s lab.Status) error {
	nodes := [][]string{{"NODE", "ADDRESSES", "NETNS", "AGENT", "BACKEND", "REVISION", "IN SYNC", "POLICIES", "GROUPS", "PROBLEMS"}}
	for _, n := range s.Nodes {
		agent := "down"
		if n.AgentPID != 0 {
			agent = fmt.Sprintf("pid %d", n.AgentPID)
		}
		row := []string{n.Name, n.Addresses, n.Namespace, agent}
		if a := n.Agent; a != nil {
			row = append(row, a.Backend, fmt.Sprintf("%d/%d", a.Programmed, a.Observed), fmt.Sprint(a.InSync),
				fmt.Sprint(len(a.Policies)), fmt.Sprint(a.Groups), fmt.Sprint(len(a.Problems)))
		} else {
			row = append(row, n.Error)
		}
		nodes = append(nodes, row)
	}
	if err := printTable(w, nodes); err != nil {
		return err
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
