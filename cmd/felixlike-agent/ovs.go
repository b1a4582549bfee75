package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/supervisor"
)

// checkTimeout bounds a check, below a probe's usual second or two.
const checkTimeout = 5 * time.Second

func ovsCommand() *cobra.Command {
	database, check := "", false
	c := &cobra.Command{
		Use: "ovs", Short: "Run this node's Open vSwitch: both daemons, started again when they end", Args: cobra.NoArgs,
		Long: `Run this node's Open vSwitch in the foreground: ovsdb-server and ovs-vswitchd,
with their sockets in --ovs-run-dir, started again when they end. On SIGTERM
connections and the node's addresses are saved before the daemons end.

With --check, only say whether both daemons answer: exit code 0 if they do, 2 if not.`,
		Example: `  felixlike-agent ovs
  felixlike-agent ovs --check`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(cmd.Flags(), os.Environ())
			if err != nil {
				return err
			}
			if check {
				ctx, cancel := context.WithTimeout(cmd.Context(), checkTimeout)
				defer cancel()
				return supervisor.Check(ctx, cfg.OVSRunDir)
			}
			log, err := logger(cmd.ErrOrStderr(), cfg.LogLevel)
			if err != nil {
				return err
			}
			return supervisor.Run(cmd.Context(), supervisor.Options{
				RunDir: cfg.OVSRunDir, DatabaseDir: database, Bridge: cfg.Bridge, Management: filepath.Join(cfg.OVSRunDir, cfg.Bridge+".mgmt"),
				Gateway: model.GatewayPort, Userspace: cfg.Datapath == ovsdb.DatapathNetdev, Output: os.Stderr,
				Log: log.With("node", cfg.NodeName),
			})
		},
	}
	c.Flags().StringVar(&database, "database-dir", "/var/lib/felixlike/ovs", "directory of the database, kept over restarts and reboots")
	c.Flags().BoolVar(&check, "check", false, fmt.Sprintf("say whether both daemons answer within %s, and end", checkTimeout))
	return c
}
