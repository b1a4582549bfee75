package cli

import (
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/bench"
	"github.com/felixlike/felixlike/felixlike/config"
)

func packetsCommand() *cobra.Command {
	cfg := bench.PacketsConfig{}
	var output, out string
	c := &cobra.Command{
		Use:   "packets",
		Short: "Measure what packets of pods find under each backend: connections, round trips, throughput",
		Long: `Measure what packets of pods find under each backend: connections, round trips,
throughput.

It makes a lab of one node and two pods, changes the backend under them between
the turns, and leaves nothing behind.`,
		Example: "  felixctl bench packets --rounds 3\n" +
			"  felixctl bench packets --backends nftables,openflow --duration 10s --out packets",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, b := range cfg.Backends {
				if err := config.CheckChoice("backend", b); err != nil {
					return fmt.Errorf("--backends: %w", err)
				}
			}
			if err := checkOutput(output); err != nil {
				return err
			}
			cfg.Progress = &progress{out: c.ErrOrStderr(), started: time.Now()}
			cfg.Command = commandLine(os.Args)
			ctx, cancel := signal.NotifyContext(c.Context(), unix.SIGINT, unix.SIGTERM)
			defer cancel()
			r, err := bench.RunPackets(ctx, cfg)
			if err != nil {
				return err
			}
			if out != "" {
				if err := save(r, out); err != nil {
					return err
				}
			}
			return print(c.OutOrStdout(), r, output)
		},
	}
	f := c.Flags()
	f.StringSliceVar(&cfg.Backends, "backends", packetsBackends(), "backends to measure, in turn; the others are compared with the first")
	f.IntVar(&cfg.Rounds, "rounds", 3, "how often each backend has its turn")
	f.DurationVar(&cfg.Duration, "duration", 2*time.Second, "how long each kind of traffic is measured in a turn")
	f.IntVar(&cfg.Policies, "policies", 10, "how many policies of ten rules apply to the server")
	f.StringVar(&cfg.Datapath, "datapath", "netdev", "the bridge's datapath: netdev (userspace) or system (kernel module)")
	f.StringVar(&out, "out", "", "also write OUT.json and OUT.md")
	outputFlag(c, &output)
	return c
}

// packetsBackends are all, each by one name.
func packetsBackends() []string {
	var names []string
	for _, b := range config.Choices("backend") {
		if b != "iptables" { // one of the two that follow
			names = append(names, b)
		}
	}
	return names
}
