package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/felixlike/felixlike/cmd/felixctl/agentflag"
	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/hosts/boot"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/internal/nearest"
)

// hostsNode is the node on which the command acts.
type hostsNode struct {
	// Target names a node of a lab, or this machine.
	agentflag.Target
	stateDir string
}

// do calls f with the stateDir of the agent, and a descriptor of the node's network namespace, zero for that of the process.
func (n *hostsNode) do(ctx context.Context, f func(stateDir string, netns int) error) error {
	if n.Lab == "" {
		return f(stateDirOf(n.stateDir, agentConfig, os.Environ()), 0)
	}
	if n.stateDir != "" {
		return errors.New("--lab and --state-dir are both given: give one of them")
	}
	at, err := labs.NewClient(n.Root, n.Lab).Node(ctx, n.Node)
	if err != nil {
		return err
	}
	ns, err := os.Open(namespace.Path(at.Namespace))
	if err != nil {
		return fmt.Errorf("lab %s: node %s: %w", n.Lab, at.Name, err)
	}
	defer ns.Close()
	return f(labs.StateDir(labs.NodeDir(filepath.Join(n.Root, n.Lab), at.Name)), int(ns.Fd()))
}

func hostsCommand() *cobra.Command {
	n := &hostsNode{}
	c := &cobra.Command{
		Use:   "hosts",
		Short: "Turn the policies of this node itself off and on",
		Example: `  felixctl hosts off
  felixctl hosts on`,
		Args: nearest.Command,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	off := &cobra.Command{
		Use:   "off",
		Short: "Open this node: remove the table of its own policies, and have the agent not put it back",
		Long: `Open this node: remove the table inet felixlike-hosts, which has the policies of the node
itself (ClusterNetworkPolicies that apply to nodes), and have the agent not put it back
until felixctl hosts on.

It is the way out if such a policy locks you out of a node. It needs neither the agent nor
the API server, and holds over restarts and reboots. Policies of pods stay in force.

Without felixctl, the same is:
  mkdir -p /var/lib/felixlike/hosts && touch /var/lib/felixlike/hosts/off
  nft delete table inet felixlike-hosts

Exit codes: 0 the policies are off; 2 they are not, or not known to be.`,
		Example: `  felixctl hosts off
  felixctl hosts off --lab lab/node1`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return n.do(c.Context(), func(stateDir string, netns int) error {
				return hostsOff(c.Context(), c.OutOrStdout(), stateDir, netns)
			})
		},
	}
	on := &cobra.Command{
		Use:     "on",
		Short:   "End hosts off: the agent programs the policies of this node again",
		Example: "  felixctl hosts on",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return n.do(c.Context(), func(stateDir string, _ int) error { return hostsOn(c.OutOrStdout(), stateDir) })
		},
	}
	n.Explicit(off)
	n.Explicit(on)
	c.AddCommand(off, on)
	c.PersistentFlags().StringVar(&n.stateDir, "state-dir", "", "the agent's stateDir; if empty, as in "+agentConfig+" and the environment, else "+config.Defaults().StateDir)
	return c
}

// agentConfig is the agent's configuration in its pod.
const agentConfig = "/etc/felixlike/agent.yaml"

// stateDirOf returns the agent's stateDir: the one that the user names, else that of its configuration, if there is one that can be read.
func stateDirOf(named, file string, environ []string) string {
	if named != "" {
		return named
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.AddFlags(flags)
	if _, err := os.Stat(file); err == nil {
		_ = flags.Set("config", file) // it takes every text
	}
	if cfg, err := config.Load(flags, environ); err == nil {
		return cfg.StateDir
	}
	return config.Defaults().StateDir
}

// hostsOff writes the file before it removes the table: an agent that runs would put that back.
func hostsOff(ctx context.Context, out io.Writer, stateDir string, netns int) error {
	path := filepath.Join(stateDir, backend.HostsDir, boot.OffFile)
	had, _ := backend.HostsExist(ctx, netns) // an error comes again below
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, nil, 0o600)
	}
	if err != nil {
		err = fmt.Errorf("an agent that runs or starts puts the policies back: %w", err)
	}
	opened, removeErr := backend.RemoveHosts(ctx, netns)
	switch {
	case removeErr != nil:
		return errors.Join(err, fmt.Errorf("remove the policies of this node: %w", removeErr))
	case opened || had: // an agent that runs may have been faster
		var names []string
		r, _ := boot.Read(filepath.Dir(path)) // in an emergency, the damaged record's fault can wait
		inForce := r.Trial
		if inForce.Empty() {
			inForce = r.Confirmed
		}
		if !inForce.Empty() {
			for _, p := range inForce.Policies {
				names = append(names, p.ID.String())
			}
		}
		fmt.Fprintf(out, "no longer in force on this node: %s\n", cmp.Or(strings.Join(names, ", "), "policies that were not confirmed"))
		fmt.Fprintln(out, "the table inet felixlike-hosts is gone: every port of this node is open, and to every destination, as far as felixlike is concerned; policies of pods stay in force")
	default:
		fmt.Fprintln(out, "this node had no policy of its own in force: nothing was closed")
	}
	if err == nil {
		fmt.Fprintf(out, "the agent programs none until felixctl hosts on (%s)\n", path)
	}
	return err
}

func hostsOn(out io.Writer, stateDir string) error {
	err := os.Remove(filepath.Join(stateDir, backend.HostsDir, boot.OffFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fmt.Fprintln(out, "the policies of this node were not off")
		return nil
	case err != nil:
		return err
	}
	fmt.Fprintln(out, "the agent programs the policies of this node within seconds, if it runs")
	return nil
}
