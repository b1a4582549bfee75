package cli

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/test/bench"
	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/bench/workload"
)

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
	outputFlag(c, &output)
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
	if err := checkOutput(output); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cfg.Progress = newProgress(c.ErrOrStderr())
	cfg.Worker = []string{program, "bench", workerName}
	cfg.Command = commandLine(os.Args)
	ctx, cancel := signal.NotifyContext(c.Context(), unix.SIGINT, unix.SIGTERM)
	defer cancel()
	r, err := bench.Run(ctx, cfg)
	if err != nil {
		return err
	}
	return finish(c, r, output, out)
}

func profiles() string {
	var b strings.Builder
	for _, p := range workload.Profiles() {
		fmt.Fprintf(&b, "\n  %-8s %s", p.Name, p)
	}
	return b.String()
}

func datapathFlag(c *cobra.Command, cfg *bench.Config) {
	c.Flags().StringVar(&cfg.Datapath, "datapath", "netdev", "datapath of the bridges that packets pass: netdev (userspace) or system (kernel module)")
}

const workerName = "worker"
