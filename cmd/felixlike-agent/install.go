package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/cni/install"
	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
)

// The directories that deploy/base mounts for install.
const (
	hostBinDir  = "/host/opt/cni/bin"
	nodeBinDir  = "/opt/cni/bin"
	hostConfDir = "/host/etc/cni/net.d"
	imagePlugin = "/opt/cni/bin"
	conflist    = "/etc/felixlike/05-felixlike.conflist"
	stateDir    = "/var/lib/felixlike"
)

func installCommand() *cobra.Command {
	o := install.Options{Source: imagePlugin}
	modulesOnly := false
	c := &cobra.Command{
		Use: "install", Short: "Check this node, and put the CNI plugins and their configuration on it", Args: cobra.NoArgs,
		Long: `Check this node, load kernel modules where that is needed and possible, and put
the CNI plugins and their configuration on it. It is run in the DaemonSet's init
container. A line is printed for everything that was looked at or done; if the
agent cannot work on this node, nothing is changed.

With --modules-only, only load kernel modules. It is run in the init container of the
DaemonSet of Open vSwitch, which may start before that of the agent.

Exit codes: 0 done; 2 something is missing.`,
		Example: `  felixlike-agent install
  felixlike-agent install --modules-only`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(cmd.Flags(), os.Environ())
			if err != nil {
				return err
			}
			o.Backend, o.Datapath, o.OVSRunDir, o.Tunnel = cfg.Backend, cfg.Datapath, cfg.OVSRunDir, cfg.TunnelInUse()
			o.WireGuardPort, o.PolicyOnly, o.SNAT = cfg.WireGuardInUse(), cfg.TrafficMode == config.PolicyOnly, cfg.SNAT == config.OpenFlow
			o.Try = func(ctx context.Context) error { return backend.Try(ctx, cfg) }
			report := func(f install.Finding) { fmt.Fprintln(cmd.OutOrStdout(), f) }
			if modulesOnly {
				o.LoadModules(cmd.Context(), report)
				return nil
			}
			return o.Install(cmd.Context(), report)
		},
	}
	c.Flags().StringVar(&o.BinDir, "cni-bin-dir", hostBinDir, "the container runtime's directory of CNI plugins, as it is mounted here")
	c.Flags().StringVar(&o.ConfDir, "cni-conf-dir", hostConfDir, "the container runtime's directory of CNI configurations, as it is mounted here")
	c.Flags().StringVar(&o.UnitDir, "unit-dir", "", "the node's directory for units of systemd, as it is mounted here: a unit there loads the confirmed policies of the node itself at boot; if empty, there is none")
	c.Flags().StringVar(&o.NodeBinDir, "node-cni-bin-dir", nodeBinDir, "the name of --cni-bin-dir on the node, for that unit")
	c.Flags().StringVar(&o.Conflist, "conflist", conflist, "network configuration to install")
	c.Flags().BoolVar(&modulesOnly, "modules-only", false, "load kernel modules, and end")
	c.Flags().StringVar(&o.StateDir, "state-dir", stateDir, "directory of the record of installed files")
	return c
}
