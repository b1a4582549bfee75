package page

import (
	"slices"

	"github.com/felixlike/felixlike/bench"
	"github.com/felixlike/felixlike/felixlike"
)

// datapath is what switched, and what that means for the figures.
type datapath struct{ Name, Meaning string }

// datapaths returns those of a report.
func datapaths(r *bench.Report) []datapath {
	if slices.Contains(r.Backends, felixlike.OpenFlow) {
		return []datapath{{"netdev (Open vSwitch in userspace)", "No packet was sent in this run. Programming openflow was measured with a switch in userspace: it says nothing about how long the kernel's datapath takes to follow."}}
	}
	return []datapath{{"none", "No packet was sent in this run, and no switch was programmed: what is measured is the kernel's netfilter being programmed."}}
}
