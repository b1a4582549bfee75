//go:build !linux

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/felixlike/version"
)

// nodeCommands are the commands that need a node. Here they say so. version is that of this
// program alone.
func nodeCommands() []*cobra.Command {
	all := []*cobra.Command{{
		Use: "version", Short: "Show the version of felixctl (with --all-nodes: of the agents)", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), "felixctl", version.String())
			return err
		},
	}}
	for _, name := range []string{"backend", "check", "diags", "diff", "drops", "dump", "policies", "policy-log", "preview", "prove", "reach", "services", "snapshot", "status", "trace", "ui"} {
		all = append(all, elsewhere(name, fmt.Sprintf("felixctl --node NODE %s asks an agent of the cluster", name)))
	}
	for _, name := range []string{"lab", "bench"} {
		all = append(all, elsewhere(name, "felixlab is for Linux only"))
	}
	return all
}

func elsewhere(name, instead string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: "Needs Linux: " + instead, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error { return fmt.Errorf("%s needs Linux: %s", name, instead) },
	}
}

func notAsExpected(error) bool { return false }

func inBetween(error) bool { return false }

func becomeFelixlab([]string) error { return nil }
