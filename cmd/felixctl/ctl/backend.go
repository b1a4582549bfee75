package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/nearest"
	"github.com/felixlike/felixlike/internal/terminal"
)

func backendCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "backend",
		Short: "Show or change the backend that decides policy on this node",
		Example: `  felixctl backend get
  felixctl backend set openflow`,
		Args: nearest.Command,
		// Without it, cobra takes an unknown command for a request for help.
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(getCommand(), setCommand(), cleanupCommand())
	return c
}

// inForce is the answer to `backend get`.
type inForce struct {
	Node    string `json:"node"`
	Backend string `json:"backend"`
	// Configured is the backend of the configuration while the agent, which found Backend in force, has not changed to it; else empty.
	Configured string `json:"configured,omitempty"`
	// Handover is the change under way, if there is one.
	Handover *control.Handover `json:"handover,omitempty"`
}

func getCommand() *cobra.Command {
	var t target
	c := &cobra.Command{
		Use:   "get",
		Short: "Print the backend in force",
		Example: `  felixctl backend get
  felixctl backend get --lab lab/node1 -o json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return t.call(c.Context(), func(ctx context.Context, agent *control.Client) error {
				s, err := agent.Status(ctx)
				if err != nil {
					return err
				}
				out := c.OutOrStdout()
				return t.output.Print(out, inForce{s.Node, s.Backend, s.Configured, s.Handover}, func() error {
					if s.Handover != nil {
						_, err = fmt.Fprintf(out, "%s, changing to %s: %s\n", s.Backend, s.Handover.To, s.Handover.Phase)
						return err
					}
					if s.Configured != "" {
						_, err = fmt.Fprintf(out, "%s, configured: %s\n", s.Backend, s.Configured)
						return err
					}
					_, err = fmt.Fprintln(out, s.Backend)
					return err
				})
			})
		},
	}
	t.flags(c, 10*time.Second)
	t.output.Flag(c)
	return c
}

func setCommand() *cobra.Command {
	var t target
	c := &cobra.Command{
		Use:   "set " + strings.Join(config.BackendNames(), "|"),
		Short: "Change the backend under traffic",
		Long: `Change the backend under traffic.

The new backend is built beside the old one and read back; only then is the old
one removed. Meanwhile a packet has to pass both, so nothing gets through that
either denies, and established connections go on: between "openflow", which
decides in the switch, and the others, which decide in the kernel, they are
carried from one connection tracking to the other. If the new backend cannot be
programmed, the old one stays in force and the reason is printed.

"iptables" takes the variant in which the node's other programs have their
rules; "iptables-legacy" and "iptables-nft" name one.

The change holds until the agent restarts: then it changes to the backend of
its configuration.

Exit codes: 0 the backend is in force, and nothing of another one is left; 2 it
is not, or not known to be: ask again with felixctl backend get.`,
		Example: "  felixctl backend set iptables-nft",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("want one of %s", strings.Join(config.BackendNames(), ", "))
			}
			return config.CheckChoice("backend", args[0])
		},
		ValidArgs: config.BackendNames(),
		RunE: func(c *cobra.Command, args []string) error {
			return t.call(c.Context(), func(ctx context.Context, agent *control.Client) error {
				r, err := change(ctx, agent, args[0], c.ErrOrStderr())
				if err != nil {
					return err
				}
				return t.output.Print(c.OutOrStdout(), r, func() error { return r.print(c.OutOrStdout()) })
			})
		},
	}
	t.flags(c, 2*time.Minute)
	t.output.Flag(c)
	return c
}

// changed is the answer to `backend set`.
type changed struct {
	Node    string `json:"node"`
	Backend string `json:"backend"`
	// Before is the backend that was in force when the command began.
	Before string        `json:"before"`
	Took   time.Duration `json:"tookNanoseconds"`
}

func (r changed) print(w io.Writer) error {
	if r.Backend == r.Before {
		_, err := fmt.Fprintf(w, "%s: %s is in force already\n", r.Node, r.Backend)
		return err
	}
	_, err := fmt.Fprintf(w, "%s: %s has taken over from %s after %s; nothing of the old one is left\n"+
		"To keep it over a restart of the agent, its configuration has to say so: backend: %s\n", r.Node, r.Backend, r.Before, r.Took.Round(time.Millisecond), r.Backend)
	return err
}

// change requests the backend and prints the progress until it is in force.
func change(ctx context.Context, agent *control.Client, name string, progress io.Writer) (changed, error) {
	before, err := agent.Status(ctx)
	if err != nil {
		return changed{}, err
	}
	start := time.Now()
	stop := terminal.Progress(progress, func() string {
		s, err := agent.Status(ctx)
		if err != nil || s.Handover == nil {
			return "waiting for the agent"
		}
		return strings.TrimSpace(fmt.Sprintf("%s -> %s: %s %s", s.Backend, s.Handover.To, s.Handover.Phase, s.Handover.Error))
	})
	err = agent.SetBackend(ctx, name)
	took := time.Since(start)
	stop()
	if err != nil {
		return changed{}, err
	}
	after, err := agent.Status(ctx)
	return changed{Node: after.Node, Backend: after.Backend, Before: before.Backend, Took: took}, err
}

func cleanupCommand() *cobra.Command {
	var t target
	var yes bool
	defaults := config.Defaults()
	var at backend.Switch
	c := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove the leftovers of all backends of felixlike on this node",
		Long: `Remove the leftovers of all backends of felixlike on this node: its nftables table,
its iptables chains of both variants, its ipsets, all known by their names, its
policy flows in the bridge, known by their cookies, and the tables and the rule in
INPUT that it keeps beside every backend.

After it no NetworkPolicy is enforced here. It is refused while an agent runs,
which would only put everything back.`,
		Example: "  felixctl backend cleanup --yes",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !yes {
				return errors.New("after this no NetworkPolicy is enforced on this node: say --yes if that is meant")
			}
			err := t.call(c.Context(), func(ctx context.Context, agent *control.Client) error {
				_, err := agent.Status(ctx)
				return err
			})
			if err == nil {
				return fmt.Errorf("an agent runs (%s): stop it first, it would put everything back", t.Socket())
			}
			removed, err := backend.Remove(c.Context(), backend.Config{Switch: at})
			err = errors.Join(err, backend.RemoveBeside(c.Context(), 0))
			for _, name := range removed {
				fmt.Fprintf(c.OutOrStdout(), "%s: nothing is left\n", name)
			}
			return err
		},
	}
	t.flags(c, 10*time.Second)
	c.Flags().BoolVar(&yes, "yes", false, "go ahead")
	c.Flags().StringVar(&at.RunDir, "ovs-run-dir", defaults.OVSRunDir, "directory with Open vSwitch's sockets")
	c.Flags().StringVar(&at.Bridge, "bridge", defaults.Bridge, "integration bridge")
	return c
}
