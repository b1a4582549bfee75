package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/test/bench"
	"github.com/felixlike/felixlike/test/bench/workload"
)

func versionsCommand() *cobra.Command {
	var cfg bench.Config
	var profile, output string
	var backends []string
	var limit float64
	c := &cobra.Command{
		Use:   "versions OLD-PROGRAM",
		Short: "Compare the CPU time of this version with that of an older one, in turns",
		Long: `Compare the CPU time of this version with that of an older one, in turns.

OLD-PROGRAM is the older version's felixlab (or felixctl, before felixlab). In each
round, each backend has a turn of either version, with the same workload. The
ratio is the median over the rounds, new to old.

Exit codes: 0 no ratio is above the limit; 1 one is; 2 wrong usage, or something
could not be done.`,
		Example: "  felixctl bench versions /tmp/old/felixlab --profile w1 --rounds 3",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if output != "text" && output != "json" {
				return fmt.Errorf("--output %q: must be text or json", output)
			}
			if cfg.Profile, err = workload.FindProfile(profile); err != nil {
				return fmt.Errorf("--profile: %w", err)
			}
			if !(limit > 0) {
				return errors.New("--limit: must be above 0")
			}
			if err := setBackends(&cfg, backends); err != nil {
				return err
			}
			program, err := os.Executable()
			if err != nil {
				return err
			}
			cfg.Progress = newProgress(c.ErrOrStderr())
			cfg.Worker = []string{program, "bench", workerName}
			ctx, cancel := signal.NotifyContext(c.Context(), unix.SIGINT, unix.SIGTERM)
			defer cancel()
			v, err := bench.CompareVersions(ctx, cfg, []string{args[0], "bench", workerName}, limit)
			if err != nil {
				return err
			}
			return printVersions(c, v, output)
		},
	}
	f := c.Flags()
	f.StringVar(&profile, "profile", workload.W1, "size of the workload, as of run")
	f.StringSliceVar(&backends, "backends", []string{"nftables"}, "backends to measure, in turn")
	f.IntVar(&cfg.Rounds, "rounds", 3, "how often each version of each backend has its turn")
	f.Float64Var(&limit, "limit", 1.15, "the highest ratio that is no failure")
	f.StringVarP(&output, "output", "o", "text", "output format: text, json")
	terminal.HeadersFlag(c)
	return c
}

func printVersions(c *cobra.Command, v *bench.Versions, output string) error {
	w := c.OutOrStdout()
	if output == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		if err := e.Encode(v); err != nil {
			return err
		}
	} else {
		headings, rows := v.Table()
		t := terminal.NewTable(terminal.StyleFor(w), headings...)
		for _, r := range rows {
			cells := make([]any, len(r))
			for i := range r {
				cells[i] = r[i]
			}
			t.Row(cells...)
		}
		fmt.Fprintf(w, "%s\nload %s at first, %s at the end, %d cores\n", t, v.Machine.LoadBefore, v.Machine.LoadAfter, v.Machine.Cores)
		for _, d := range v.Dearer() {
			fmt.Fprintf(w, "dearer: %s under %s takes %.2f times the CPU of the old version, the limit is %.2f\n", d.What, d.Backend, d.Ratio().Median(), v.Limit)
		}
	}
	if len(v.Dearer()) > 0 {
		return ErrChanged
	}
	return nil
}
