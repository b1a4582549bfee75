package ctl

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/internal/terminal"
)

// printStaged prints the staged policies, if a namespace is given only those of it.
func (t *target) printStaged(c *cobra.Command, agent *control.Client, namespace string) error {
	status, err := agent.Status(c.Context())
	if err != nil {
		return err
	}
	all := control.Staged{Node: status.Node, Policies: []control.StagedPolicy{}}
	if status.Staged != nil {
		all = *status.Staged
	}
	if namespace != "" {
		all.Policies = slices.DeleteFunc(all.Policies, func(p control.StagedPolicy) bool { return !inNamespace(p.Policy, namespace) })
	}
	if t.output == terminal.Name {
		return terminal.PrintNames(c.OutOrStdout(), report.StagedNames(all))
	}
	return t.output.Print(c.OutOrStdout(), all, func() error { return report.PrintStaged(c.OutOrStdout(), t.output, all) })
}
