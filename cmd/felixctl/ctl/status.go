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
	return []*cobra.Command{statusCommand(), backendCommand(), previewCommand(), policiesCommand(), dropsCommand(), checkCommand(), diagsCommand()}
}

func statusCommand() *cobra.Command {
	var t target
	c := &cobra.Command{
		Use:   "status",
		Short: "What the agent of this node knows, has programmed, and has set aside",
		Long: `What the agent of this node knows, has programmed, and has set aside.

Exit codes: 0 all that is known is in force; 1 it is not (nothing listed yet, an
apply failed, a change waits, or an object is set aside); 2 the agent could not
be asked.`,
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
