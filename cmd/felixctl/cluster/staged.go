package cluster

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/internal/terminal"
)

// stagedPolicies is the answer of `policies --staged`.
type stagedPolicies struct {
	Nodes []control.Staged `json:"nodes"`
	// NoAnswer are the nodes that are missing.
	NoAnswer []string `json:"noAnswer,omitempty"`
}

// printStaged asks the agents with a command, and prints their staged policies by node.
func (t target) printStaged(c *cobra.Command, output terminal.Output, command []string) error {
	replies, err := t.ask(c.Context(), c.ErrOrStderr(), command...)
	if err != nil {
		return err
	}
	all := stagedPolicies{Nodes: []control.Staged{}}
	var names []string
	for _, r := range replies {
		var s control.Staged
		if !r.decode(&s) {
			all.NoAnswer = append(all.NoAnswer, r.Node)
			fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", r.Node, r.Fault)
			continue
		}
		all.Nodes = append(all.Nodes, s)
		names = append(names, report.StagedNames(s)...)
	}
	if output == terminal.Name {
		slices.Sort(names)
		err = terminal.PrintNames(c.OutOrStdout(), slices.Compact(names))
	} else {
		err = output.Print(c.OutOrStdout(), all, func() error { return report.PrintStaged(c.OutOrStdout(), output, all.Nodes...) })
	}
	if err != nil {
		return err
	}
	return errNoAnswer(len(all.NoAnswer), len(replies))
}
