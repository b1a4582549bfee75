// Package cli is `felixctl bench`: its commands and flags. The work is done by package
// bench.
package cli

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	livecli "github.com/felixlike/felixlike/cmd/felixctl/livebench/cli"
	"github.com/felixlike/felixlike/internal/nearest"
	"github.com/felixlike/felixlike/test/bench"
	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/bench/workload"
)

// Commands returns `felixctl bench` with all its commands.
func Commands() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure the cost of the policy backends on this machine",
		Long: `Measure the cost of the policy backends on this machine.

Exit codes: 0 it ran; 1 compare has found a change; 2
wrong usage, or something could not be done.`,
		Example: `  felixctl bench run --profile w1 --backends nftables,openflow --out w1
  felixctl bench packets
  felixctl bench compare old.json new.json`,
		Args: nearest.Command,
		// Without it, cobra takes an unknown command for a request for help.
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(runCommand(), packetsCommand(), livecli.Command(), reportCommand(), compareCommand(), workerCommand())
	return c
}

func runCommand() *cobra.Command {
	var cfg bench.Config
	var profile, output, out string
	var backends, only []string
	var idle time.Duration
	c := &cobra.Command{
		Use:   "run",
		Short: "Run a workload on one backend or several in turn, and report",
		Long: `Run a workload on one backend or several in turn, and report.

It runs in new network namespaces and leaves nothing behind. Parts:

  programming  the cost of programming policy into the kernel or the switch
  enforcement  the time from an object to the first packet that is denied
  packets      connections and throughput of pods, by number of policies

Profiles:
` + profiles(),
		Example: "  felixctl bench run --profile small --rounds 2\n" +
			"  felixctl bench run --profile w1 --backends nftables,iptables-nft --only programming --idle 1h --out w1",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if cfg.Profile, err = workload.FindProfile(profile); err != nil {
				return fmt.Errorf("--profile: %w", err)
			}
			if c.Flags().Changed("idle") {
				cfg.Profile.Idle = idle
			}
			for _, part := range only {
				cfg.Parts = append(cfg.Parts, bench.Part(part))
			}
			if err := setBackends(&cfg, backends); err != nil {
				return err
			}
			return runAndReport(c, cfg, output, out)
		},
	}
	f := c.Flags()
	f.StringVar(&profile, "profile", workload.W1, "size of the workload: see above")
	f.StringSliceVar(&only, "only", nil, "parts to run (default: all)")
	f.StringSliceVar(&backends, "backends", worker.BackendNames(), "backends to measure, in turn; the others are compared with the first")
	f.IntVar(&cfg.Rounds, "rounds", 3, "how often each backend has its turn")
	f.DurationVar(&idle, "idle", 0, "how long the idle agent is watched, once (default: the profile's)")
	datapathFlag(c, &cfg)
	f.StringVar(&out, "out", "", "also write OUT.json and OUT.md")
	livecli.OutputFlag(c, &output)
	return c
}

func setBackends(cfg *bench.Config, names []string) error {
	for _, name := range names {
		b, err := worker.FindBackend(name)
		if err != nil {
			return fmt.Errorf("--backends: %w", err)
		}
		cfg.Backends = append(cfg.Backends, b)
	}
	return nil
}

// runAndReport runs the benchmark, saves and prints its report.
func runAndReport(c *cobra.Command, cfg bench.Config, output, out string) error {
	if err := livecli.CheckOutput(output); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cfg.Progress = livecli.NewProgress(c.ErrOrStderr())
	cfg.Worker = []string{program, "bench", workerName}
	cfg.Command = livecli.CommandLine(os.Args)
	ctx, cancel := signal.NotifyContext(c.Context(), unix.SIGINT, unix.SIGTERM)
	defer cancel()
	r, err := bench.Run(ctx, cfg)
	if err != nil {
		return err
	}
	return livecli.Finish(c, r, output, out)
}

func profiles() string {
	var b strings.Builder
	for _, p := range workload.Profiles() {
		fmt.Fprintf(&b, "\n  %-8s %s", p.Name, p)
	}
	return b.String()
}

const workerName = "worker"

// workerCommand is the process that `run` starts and measures.
func workerCommand() *cobra.Command {
	return &cobra.Command{
		Use: workerName, Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return worker.Run(c.Context(), c.InOrStdin(), c.OutOrStdout())
		},
	}
}
