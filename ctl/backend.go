package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/felixlike"
	"github.com/felixlike/felixlike/felixlike/control"
)

func backendCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "backend",
		Short: "Which backend decides policy on this node, and its change under traffic",
		Args:  cobra.NoArgs,
		// Without it, cobra takes an unknown command for a request for help.
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(getCommand(), setCommand(), cleanupCommand())
	return c
}

func getCommand() *cobra.Command {
	var t target
	c := &cobra.Command{
		Use:   "get",
		Short: "Print the backend in force",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return t.call(c.Context(), func(ctx context.Context, agent *control.Client) error {
				s, err := agent.Status(ctx)
				if err != nil {
					return err
				}
				if s.Handover != nil {
					_, err = fmt.Fprintf(c.OutOrStdout(), "%s, changing to %s: %s\n", s.Backend, s.Handover.To, s.Handover.Phase)
					return err
				}
				_, err = fmt.Fprintln(c.OutOrStdout(), s.Backend)
				return err
			})
		},
	}
	t.flags(c, 10*time.Second)
	return c
}

func setCommand() *cobra.Command {
	var t target
	names := strings.Join(felixlike.BackendNames(), "|")
	c := &cobra.Command{
		Use:   "set " + names,
		Short: "Change the backend under traffic",
		Long: `Change the backend under traffic.

The new backend is built beside the old one and read back; only then is the old
one removed. Meanwhile a packet has to pass both, so nothing gets through that
either denies, and established connections go on. If the new backend cannot be
programmed, the old one stays in force and the reason is printed.

The change holds until the agent restarts: then it goes by its configuration
(backend), and removes what the other backend left.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return t.call(c.Context(), func(ctx context.Context, agent *control.Client) error {
				return change(ctx, agent, args[0], c.OutOrStdout(), c.ErrOrStderr())
			})
		},
	}
	t.flags(c, 2*time.Minute)
	return c
}

// progressEvery is how often a change is told of that takes longer.
const progressEvery = 2 * time.Second

// change asks for the backend and tells how far it is until it is in force.
func change(ctx context.Context, agent *control.Client, name string, out, progress io.Writer) error {
	before, err := agent.Status(ctx)
	if err != nil {
		return err
	}
	start, done := time.Now(), make(chan error, 1)
	go func() { done <- agent.SetBackend(ctx, name) }()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return err
			}
			after, err := agent.Status(ctx)
			if err != nil {
				return err
			}
			if after.Backend == before.Backend {
				_, err = fmt.Fprintf(out, "%s is in force already\n", after.Backend)
				return err
			}
			_, err = fmt.Fprintf(out, "%s has taken over from %s after %s; nothing of the old one is left\n",
				after.Backend, before.Backend, time.Since(start).Round(time.Millisecond))
			return err
		case <-tick.C:
			if s, err := agent.Status(ctx); err == nil && s.Handover != nil {
				fmt.Fprintf(progress, "%s -> %s: %s (%s) %s\n", s.Backend, s.Handover.To, s.Handover.Phase,
					time.Since(start).Round(time.Second), s.Handover.Error)
			}
		}
	}
}

func cleanupCommand() *cobra.Command {
	var t target
	var yes bool
	c := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what any backend of felixlike has left on this node",
		Long: `Remove what any backend of felixlike has left on this node: its nftables table,
its iptables chains of both variants, its ipsets, all known by their names.

After it no NetworkPolicy is enforced here. It is refused while an agent runs,
which would only put everything back.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !yes {
				return errors.New("after this no NetworkPolicy is enforced on this node: say --yes if that is meant")
			}
			err := t.call(c.Context(), func(ctx context.Context, agent *control.Client) error {
				_, err := agent.Status(ctx)
				return err
			})
			if err == nil {
				return fmt.Errorf("an agent runs (%s): stop it first", t.socket)
			}
			removed, err := felixlike.RemoveBackends(c.Context(), "")
			for _, name := range removed {
				fmt.Fprintf(c.OutOrStdout(), "%s: nothing is left\n", name)
			}
			return err
		},
	}
	t.flags(c, 10*time.Second)
	c.Flags().BoolVar(&yes, "yes", false, "go ahead")
	return c
}
