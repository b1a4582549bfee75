package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/cni/install"
	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

func uninstallCommand() *cobra.Command {
	l := install.Leftovers{Gateway: model.GatewayPort}
	yes := false
	c := &cobra.Command{
		Use: "uninstall", Short: "Remove everything that felixlike has left on this node", Args: cobra.NoArgs,
		Long: `Remove everything that felixlike has left on this node: interfaces of pods,
bridges, routes, rules, sets, flows, and files. The agent and its Open vSwitch
must have ended, or are waited for. deploy/uninstall.yaml runs it on every node.
It may be repeated.

Pods that are still attached lose their network.

Exit codes: 0 nothing is left; 2 something is, or felixlike still runs.`,
		Example: "  felixlike-agent uninstall --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes {
				return errors.New("after this no pod that felixlike has attached has a network: say --yes if that is meant")
			}
			cfg, err := config.Load(cmd.Flags(), os.Environ())
			if err != nil {
				return err
			}
			l.OVSRunDir, l.Bridge = cfg.OVSRunDir, cfg.Bridge
			l.Running = func(ctx context.Context) error { return notRunning(ctx, filepath.Join(l.Root, cfg.RunDir)) }
			l.RemoveBackends = func(ctx context.Context) ([]string, error) {
				at := backend.Switch{RunDir: filepath.Join(l.Root, cfg.OVSRunDir), Bridge: cfg.Bridge}
				gone, err := backend.Remove(ctx, backend.Config{Switch: at})
				return gone, errors.Join(err, backend.RemoveBeside(ctx, 0))
			}
			return l.Remove(cmd.Context(), func(f install.Finding) { fmt.Fprintln(cmd.OutOrStdout(), f) })
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "go ahead")
	c.Flags().StringVar(&l.Root, "root", "/host", "the node's root directory, as it is mounted here")
	c.Flags().StringVar(&l.BinDir, "cni-bin-dir", hostBinDir, "the container runtime's directory of CNI plugins, as it is mounted here")
	c.Flags().StringVar(&l.ConfDir, "cni-conf-dir", hostConfDir, "the container runtime's directory of CNI configurations, as it is mounted here")
	return c
}

// notRunning returns an error if an agent answers.
func notRunning(ctx context.Context, runDir string) error {
	_, err := control.NewClient(filepath.Join(runDir, control.SocketName)).Status(ctx)
	if control.NotRunning(err) {
		return nil
	}
	return fmt.Errorf("an agent runs in %s", runDir)
}
