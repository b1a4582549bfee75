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
	return []*cobra.Command{statusCommand(), backendCommand()}
}

func statusCommand() *cobra.Command {
	var t target
	var output string
	c := &cobra.Command{
		Use:   "status",
		Short: "What the agent of this node knows, has programmed, and has set aside",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return t.call(c.Context(), func(ctx context.Context, agent *control.Client) error {
				s, err := agent.Status(ctx)
				if err != nil {
					return err
				}
				return report.Status(c.OutOrStdout(), s, output)
			})
		},
	}
	t.flags(c, 10*time.Second)
	c.Flags().StringVarP(&output, "output", "o", "text", "output format: text, json or yaml")
	return c
}
