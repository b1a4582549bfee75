// Package cli is `felixctl bench`: flags, progress and files. It holds what is
// about terminals; the work is done by package bench. It is tested through
// that, and by its progress lines.
package cli

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/test/bench"
	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/bench/workload"
)

// Commands returns `felixctl bench` with all its commands.
func Commands() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure what the policy backends cost on this machine",
		Long: `Measure what the policy backends cost on this machine.

Exit codes: 0 it ran, whatever the figures are; 1 compare has found a change; 2
wrong usage, or something could not be done.`,
		Args: cobra.NoArgs,
		// Without it, cobra takes an unknown command for a request for help.
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(runCommand(), packetsCommand(), liveCommand(), reportCommand(), compareCommand(), workerCommand())
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

It runs in network namespaces of its own and leaves nothing behind. Parts:

  programming  what it costs to get policy into the kernel or the switch
  enforcement  how long it takes from an object to the first packet that is denied
  packets      what packets of pods find on their way, by number of policies

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
	cfg.Progress = &progress{out: c.ErrOrStderr(), started: time.Now()}
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

// finish saves a report, if it is to, and prints it.
func finish(c *cobra.Command, r report, output, out string) error {
	if out != "" {
		if err := save(r, out); err != nil {
			return err
		}
	}
	return print(c.OutOrStdout(), r, output)
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

func outputFlag(c *cobra.Command, output *string) {
	c.Flags().StringVarP(output, "output", "o", "text", "output format: "+strings.Join(formats(), ", "))
}

func formats() []string { return []string{"text", "json", "markdown"} }

// checkOutput refuses a format before minutes are spent.
func checkOutput(format string) error {
	if slices.Contains(formats(), format) {
		return nil
	}
	return fmt.Errorf("--output %q: must be one of %s", format, strings.Join(formats(), ", "))
}

// report is what a run ends in.
type report interface {
	Text(io.Writer) error
	JSON(io.Writer) error
	Markdown(io.Writer) error
}

func print(w io.Writer, r report, format string) error {
	switch format {
	case "json":
		return r.JSON(w)
	case "markdown":
		return r.Markdown(w)
	}
	return r.Text(w)
}

// save writes a report beside its data.
func save(r report, out string) error {
	if err := writeFile(out+".json", r.JSON); err != nil {
		return err
	}
	return writeFile(out+".md", r.Markdown)
}

// commandLine is what was typed, with the program's bare name.
func commandLine(args []string) string {
	return strings.Join(append([]string{filepath.Base(args[0])}, args[1:]...), " ")
}
