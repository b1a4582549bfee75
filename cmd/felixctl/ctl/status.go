package ctl

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/report"
)

// Commands returns the commands that talk to the agent of this node.
func Commands() []*cobra.Command {
	return []*cobra.Command{statusCommand(), backendCommand(), previewCommand(), policiesCommand(), dropsCommand(), policyLogCommand(), checkCommand(), diagsCommand(), versionCommand()}
}

func statusCommand() *cobra.Command {
	var t target
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the known, programmed and quarantined objects of this node's agent",
		Long: `Show the known, programmed and quarantined objects of this node's agent.

Exit codes: 0 all known objects are in force; 1 they are not (no listing yet, an
apply failed, a change is pending, or an object is quarantined); 2 the agent did
not answer.`,
		Example: `  felixctl status
  felixctl status -o json
  felixctl status --lab lab/node1`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return t.call(c.Context(), func(ctx context.Context, agent *control.Client) error {
				s, err := agent.Status(ctx)
				if err != nil {
					return err
				}
				if err := report.Status(c.OutOrStdout(), s, t.output); err != nil {
					return err
				}
				if !report.InOrder(s) {
					return report.ErrNotInOrder
				}
				return nil
			})
		},
	}
	t.flags(c, 10*time.Second)
	t.outputFlag(c)
	return c
}
