package page

import (
	"slices"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/test/bench"
)

// datapath is the switch of a run, and its meaning for the figures.
type datapath struct{ Name, Meaning string }

const userspace = "netdev (Open vSwitch in userspace)"

// datapaths returns those of a report: of the packets, or of the programmed switch.
func datapaths(r *bench.Report) []datapath {
	packets := ""
	switch {
	case r.Packets != nil:
		packets = r.Packets.Datapath
	case r.Enforcement != nil:
		packets = r.Enforcement.Datapath
	}
	switch {
	case packets == "netdev":
		return []datapath{{userspace, "Packets passed Open vSwitch's own datapath in userspace, with its own connection tracking. These figures compare the backends' demands on it;  " +
			"they say nothing about the speed of the kernel's datapath."}}
	case packets == "system":
		return []datapath{{"system (the kernel's module)", "Packets passed the kernel's Open vSwitch datapath, as on nodes that have the module."}}
	case packets != "":
		return []datapath{{packets, "Packets passed this datapath of Open vSwitch."}}
	case slices.Contains(r.Backends, config.OpenFlow):
		return []datapath{{userspace, "No packet was sent in this run. Programming openflow was measured with a switch in userspace: it says nothing about how long the kernel's datapath takes to follow."}}
	}
	return []datapath{{"none", "No packet was sent in this run, and no switch was programmed: the figures are of programming the kernel's netfilter."}}
}
