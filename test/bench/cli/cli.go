// Package cli is `felixctl bench`: its commands and flags. The work is done by package
// bench.
package cli

import (
	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/internal/nearest"
	"github.com/felixlike/felixlike/test/bench/worker"
)

// Commands returns `felixctl bench` with all its commands.
func Commands() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure the cost of the policy backends on this machine",
		Long: `Measure the cost of the policy backends on this machine.

Exit codes: 0 it ran; 1 compare has found a change; 2
wrong usage, or something could not be done.`,
		Example: `  felixctl bench run --profile w1 --backends nftables,openflow --out w1
  felixctl bench packets
  felixctl bench prove
  felixctl bench compare old.json new.json`,
		Args: nearest.Command,
		// Without it, cobra takes an unknown command for a request for help.
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(runCommand(), packetsCommand(), reportCommand(), compareCommand(), proveCommand(), versionsCommand(), workerCommand(), proofCommand())
	return c
}

// workerCommand is the process that `run` starts and measures.
func workerCommand() *cobra.Command {
	return &cobra.Command{
		Use: workerName, Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return worker.Run(c.Context(), c.InOrStdin(), c.OutOrStdout())
		},
	}
}
