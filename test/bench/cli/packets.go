package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/test/bench"
	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/bench/workload"
)

func packetsCommand() *cobra.Command {
	cfg := bench.Config{Parts: []bench.Part{bench.PacketsPart}}
	var backends []string
	var policies, peers []int
	var output, out string
	c := &cobra.Command{
		Use:   "packets",
		Short: "Measure traffic between pods under each backend: connections, round trips, throughput",
		Long: `Measure traffic between pods under each backend: connections, round trips,
throughput; by the number of policies that apply, and of pods that the deciding
rule allows.

It makes a lab of one node and two pods, changes the backend under them between
the turns, and leaves nothing behind. The floor, a plain veth pair, is always
measured. With --traffic-modes each pod has a node, and each backend has its turn
in each mode.`,
		Example: "  felixctl bench packets --rounds 3\n" +
			"  felixctl bench packets --policies 0,1,100,1000 --peers 1,1000 --out packets\n" +
			"  felixctl bench packets --backends nftables,openflow --duration 10s\n" +
			"  felixctl bench packets --traffic-modes encap,noEncap --backends nftables",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg.Profile.Points = workload.Points(policies, peers)
			if err := setBackends(&cfg, backends); err != nil {
				return err
			}
			return runAndReport(c, cfg, output, out)
		},
	}
	f := c.Flags()
	f.StringSliceVar(&backends, "backends", worker.BackendNames(), "backends to measure, in turn")
	f.IntVar(&cfg.Rounds, "rounds", 3, "how often each backend has its turn")
	f.DurationVar(&cfg.Profile.Traffic, "duration", 2*time.Second, "how long each kind of traffic is measured in a turn")
	f.IntSliceVar(&policies, "policies", []int{0, 10}, "how many policies of ten rules apply to the server; a list for one after the other")
	f.IntSliceVar(&peers, "peers", []int{1}, "how many pods the rule allows that lets the client through; a list for one after the other")
	f.StringSliceVar(&cfg.TrafficModes, "traffic-modes", nil, "send packets between two nodes, in these traffic modes in turn: encap, noEncap, hybrid (default: between pods of one node)")
	datapathFlag(c, &cfg)
	f.StringVar(&out, "out", "", "also write OUT.json and OUT.md")
	outputFlag(c, &output)
	return c
}
