package bench

import "github.com/felixlike/felixlike/test/bench/worker"

// othersSource is the source of the figures of other projects.
const othersSource = "The figures of others were measured apart from this run, on the same kind of machine (a shared virtual " +
	"machine with two cores) and with a workload of the same size: Calico Felix's real renderer and drivers, CPU time of the agent and its children, medians; Antrea's controller benchmarks, CPU time and peak RSS " +
	"of the whole process, which holds the objects like ours."

// other is a figure of another project's agent.
type other struct {
	profile, backend string
	c                worker.Case
	text             string
}

// others are the figures that ours stand beside: like backend beside like.
func others() []other {
	var all []other
	for _, row := range []struct {
		profile, backend                               string
		first, restart, policy, endpoint, periodicRead string
	}{
		{"w1-100", "nftables", "1.39 s", "4.84 s", "11 ms", "18 ms", "4.65 s"},
		{"w1", "nftables", "2.32 s", "8.61 s, 432-587 MB", "21 ms", "32 ms", "8.35 s"},
		{"w1-100", "iptables-nft", "1.13 s", "1.47 s", "335 ms", "347 ms", "712 ms"},
		{"w1", "iptables-nft", "3.10 s", "2.40 s", "634 ms", "662 ms", "1.52 s"},
		{"w1-100", "iptables-legacy", "626 ms", "984 ms", "347 ms", "352 ms", "232 ms"},
		{"w1", "iptables-legacy", "1.09 s", "1.31 s", "737 ms", "739 ms", "392 ms"},
	} {
		for _, f := range []struct {
			c    worker.Case
			text string
		}{
			{worker.FirstLoad, row.first},
			{worker.Restart, row.restart},
			{worker.RuleChanged, row.policy},
			{worker.EndpointAdded, row.endpoint},
			{worker.Recheck, row.periodicRead},
		} {
			all = append(all, other{row.profile, row.backend, f.c, "Felix " + f.text})
		}
	}
	return all
}

// beside returns the figure of others for a result, if there is one.
func beside(profile, backend string, c worker.Case) string {
	for _, o := range others() {
		if o.profile == profile && o.backend == backend && o.c == c {
			return o.text
		}
	}
	return ""
}
