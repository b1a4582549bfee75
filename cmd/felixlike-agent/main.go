// Command felixlike-agent is the node agent: it programs forwarding and
// NetworkPolicy for the pods of this node.
//
//	felixlike-agent [flags]          run
//	felixlike-agent config [flags]   print the effective configuration
//	felixlike-agent status [flags]   print the status of the running agent
//	felixlike-agent probe live|ready say whether the running agent is alive, or ready
//	felixlike-agent ovs [flags]      run this node's Open vSwitch
//
// Exit codes: 0 success; 1 a problem was found (status, probe); 2 the
// command failed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/felixlike"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/felixlike/version"
	"github.com/felixlike/felixlike/internal/nearest"
	"github.com/felixlike/felixlike/internal/terminal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := rootCommand().ExecuteContext(ctx)
	switch {
	case errors.Is(err, report.ErrFaults):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "felixlike-agent:", err)
		os.Exit(2)
	}
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:     "felixlike-agent",
		Short:   "Program forwarding and NetworkPolicy for the pods of this node",
		Version: version.String(),
		Example: `  felixlike-agent --node-name worker-1 --manifests /etc/felixlike/manifests
  felixlike-agent --config /etc/felixlike/agent.yaml`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(cmd.Flags(), os.Environ())
			if err != nil {
				return err
			}
			if err := checkRights(); err != nil {
				return err
			}
			log, err := logger(cmd.ErrOrStderr(), cfg.LogLevel)
			if err != nil {
				return err
			}
			limitMemory(log, memlimit.FromCgroup)
			return felixlike.RunAgent(cmd.Context(), cfg, log)
		},
	}
	root.SetFlagErrorFunc(nearest.FlagError)
	config.AddFlags(root.PersistentFlags())
	root.AddCommand(configCommand(), statusCommand(), probeCommand(), installCommand(), ovsCommand(), uninstallCommand())
	return root
}

func configCommand() *cobra.Command {
	format := terminal.Text
	c := &cobra.Command{
		Use: "config", Short: "Print the effective configuration with the origin of each value", Args: cobra.NoArgs,
		Long: `Print the effective configuration with the origin of each value. Where a setting
leaves the choice to the agent, and one runs, its choice is printed beside it.`,
		Example: `  felixlike-agent config
  felixlike-agent config --config /etc/felixlike/agent.yaml -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(cmd.Flags(), os.Environ())
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
			defer cancel()
			var running *control.Status
			if s, err := control.NewClient(filepath.Join(cfg.RunDir, control.SocketName)).Status(ctx); err == nil {
				running = &s
			}
			return report.Config(cmd.OutOrStdout(), cfg.Rows(), running, format)
		},
	}
	format.Flag(c)
	return c
}

func statusCommand() *cobra.Command {
	format := terminal.Text
	c := &cobra.Command{
		Use: "status", Short: "Print the status of the running agent, and every problem", Args: cobra.NoArgs,
		Long: `Print the status of the running agent, and every problem.

Exit codes: 0 everything is in force; 1 it is not; 2 the agent could not
be asked. felixctl status does the same by the path of the socket.`,
		Example: "  felixlike-agent status",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(cmd.Flags(), os.Environ())
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Second)
			defer cancel()
			s, err := control.NewClient(filepath.Join(cfg.RunDir, control.SocketName)).Status(ctx)
			if control.NotRunning(err) {
				return fmt.Errorf("no agent serves %s (is it running? is --run-dir its own?)", filepath.Join(cfg.RunDir, control.SocketName))
			}
			if err != nil {
				return err
			}
			if err := report.Status(cmd.OutOrStdout(), s, report.Filter{}, format); err != nil {
				return err
			}
			if !report.Ready(s) {
				return report.ErrFaults
			}
			return nil
		},
	}
	format.Flag(c)
	return c
}
