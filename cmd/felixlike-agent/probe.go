package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/health"
	"github.com/felixlike/felixlike/felixlike/report"
)

// probeTimeout bounds a probe. It is below timeoutSeconds of the DaemonSet's probes.
const probeTimeout = 4 * time.Second

// probeCommand asks the running agent for kubelet's probes. It uses the control
// socket, which only root may use: any healthAddress will do, and no other program can
// answer in the place of the agent.
func probeCommand() *cobra.Command {
	paths := map[string]string{"live": health.LivePath, "ready": health.ReadyPath}
	return &cobra.Command{
		Use: "probe live|ready", Short: "Say whether the running agent is alive, or ready", ValidArgs: []string{"live", "ready"},
		Long: `Say whether the running agent is alive, or ready. It asks over the control socket,
as the probes of the DaemonSet do, so it does not need healthAddress. Name no --config:
a mistake in a file that the agent has not read yet is no reason to restart it.

Exit codes: 0 it is; 1 it is not; 2 the agent could not be asked.`,
		Example: `  felixlike-agent probe live
  felixlike-agent probe ready`,
		Args: cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := config.Load(cmd.Flags(), os.Environ())
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), probeTimeout)
			defer cancel()
			well, answer, err := control.NewClient(filepath.Join(cfg.RunDir, control.SocketName)).Probe(ctx, paths[args[0]])
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), answer); err != nil {
				return err
			}
			if !well {
				return report.ErrFaults
			}
			return nil
		},
	}
}
