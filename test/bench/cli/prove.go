package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/test/bench/proofs"
	"github.com/felixlike/felixlike/test/bench/workload"
)

// proofName is the process that `prove` starts and measures.
const proofName = "proof"

func proveCommand() *cobra.Command {
	output, profile, limit := terminal.Text, "", time.Minute
	c := &cobra.Command{
		Use:   "prove",
		Short: "Measure the proofs of felixctl prove, and say which goals they meet",
		Long: `Measure the proofs of felixctl prove over a workload, and say which goals they meet. It
needs no root, and programs nothing.

It compares each pair of backends and layouts, nftables before and after the change of
one policy, and the state after the change with the same, as an agent without a
difference does. Each proof is a process of its own with GOMEMLIMIT=1GiB. It
reads the dumps and the models, and proves. CPU is all its processor time, MEMORY its
largest use. ELAPSED depends on what else runs.

Goals, with the profile w1 (1,000 pods, 1,000 policies of 10 rules): 2 s of processor
time a pair, 20 ms for one changed policy, 1 GB of memory. A proof that is not
completed misses them.

Profiles:
` + profiles() + `

Exit codes: 0 it ran, whatever is missed; 2 something could not be done.`,
		Example: "  felixctl bench prove\n  felixctl bench prove --profile w1-100 -o json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			p, err := workload.FindProfile(profile)
			if err != nil {
				return fmt.Errorf("--profile: %w", err)
			}
			if limit < time.Second || limit%time.Second != 0 {
				return fmt.Errorf("--limit: %s is not a number of seconds from 1", limit)
			}
			ctx, stop := signal.NotifyContext(c.Context(), unix.SIGINT, unix.SIGTERM)
			defer stop()
			all := []proofs.Measured{}
			err = proofs.Run(ctx, p, limit, proofChild, func(m proofs.Measured) {
				fmt.Fprintf(c.ErrOrStderr(), "%s and %s: %s\n", m.A, m.B, m.CPU.Round(time.Millisecond))
				all = append(all, m)
			})
			if err != nil {
				return err
			}
			return output.Print(c.OutOrStdout(), all, func() error {
				_, err := fmt.Fprintln(c.OutOrStdout(), proofTable(output.Style(c.OutOrStdout()), all))
				return err
			})
		},
	}
	output.Flag(c)
	c.Flags().DurationVar(&limit, "limit", limit, "end a proof after so much processor time, in whole seconds")
	c.Flags().StringVar(&profile, "profile", workload.W1, "size of the workload: see above")
	return c
}

// proofCommand is the process that is measured.
func proofCommand() *cobra.Command {
	return &cobra.Command{
		Use: proofName, Hidden: true, Args: cobra.ExactArgs(3),
		RunE: func(c *cobra.Command, args []string) error {
			if err := proofs.Limit(args[2]); err != nil {
				return err
			}
			return proofs.Prove(c.Context(), c.OutOrStdout(), args[:2]...)
		},
	}
}

// proofChild runs the process that is measured.
func proofChild(ctx context.Context, env []string, args ...string) ([]byte, time.Duration, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, 0, err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{"bench", proofName}, args...)...)
	cmd.Env = env
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if cmd.ProcessState == nil { // it did not start
		return nil, 0, err
	}
	return out, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), err
}

func proofTable(style terminal.Style, all []proofs.Measured) string {
	t := terminal.NewTable(style, "A", "B", "CPU", "GOAL", "", "MEMORY", "GOAL", "", "ELAPSED", "RESULT")
	met := func(is bool) string {
		if is {
			return style.Good("met")
		}
		return style.Bad("missed")
	}
	for _, m := range all {
		memory := "-"
		if m.Memory > 0 {
			memory = fmt.Sprintf("%d MB", m.Memory>>20)
		}
		t.Row(m.A, m.B, m.CPU.Round(time.Millisecond), m.Goal, met(m.TimeMet), memory, fmt.Sprintf("%d MB", proofs.MemoryGoal>>20), met(m.MemoryMet), m.Elapsed.Round(time.Millisecond), m.Outcome)
	}
	return fmt.Sprint(t)
}
