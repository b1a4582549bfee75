package bench

import (
	"fmt"
	"slices"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/measure"
)

// packets returns a section for each kind of traffic.
func (r *Report) packets() []measure.Section {
	p := r.Packets
	intro := []string{
		fmt.Sprintf("%s A number of policies of %d rules apply to the server pod. All rules but the last one of the last "+
			"policy name other peers or other ports; that one allows a number of pods, one of them the client. %s, %s of each kind in a turn.",
			p.ends(), p.RulesPerPolicy, measure.Rounds(r.Rounds), measure.Duration(p.Duration)),
		"\"" + NoBackend + "\" is the floor: " + p.floor() + " " +
			"No policy is the floor of a backend: packets take its path, and no policy judges them. \"Of floor\" is the rate as a multiple of that of " +
			NoBackend + ", round by round.",
		"CPU is that of the whole machine, with sender and receiver. \"vswitchd\" is the part of ovs-vswitchd, in CPUs. " +
			"\"The first\" is the first connection after backend or policies have changed, when nothing of its path is cached; it is not in the other figures. " +
			"Packets are counted at the client's interface, both ways; segments that it does not have to cut are counted as one.",
	}
	if p.Find(Routed, workload.Point{}, Stream) != nil {
		intro = append(intro, "\""+Switched+"\" has two pods on an Open vSwitch that switches by address, without an agent. \""+Routed+
			"\" has two pods on veth pairs that the kernel routes, and a chain of nftables that accepts established connections: the way of an agent that "+
			"programs netfilter and uses no switch.")
	}
	if p.Find(Multitenant, workload.Point{}, Stream) != nil {
		intro = append(intro, "\""+Multitenant+"\" has two pods of one tenant on an Open vSwitch with the flows of OpenShift SDN's multitenant mode, without an agent: "+
			"it isolates by numbers and tracks no connections.")
	}
	if slices.ContainsFunc(p.Results, func(f PacketsResult) bool { return settingsOf(f.Backend, settings{}).offload == config.OffloadAuto }) {
		intro = append(intro, "With \""+plus+offloaded+"\", packets of established connections skip the host (`offload: auto`).")
	}
	if p.Datapath == "netdev" {
		intro = append(intro, "The datapath is Open vSwitch's own in userspace, with its own connection tracking: these figures "+
			"compare the backends' demands on it, and say nothing about the speed of the kernel's datapath.")
	}
	all := []measure.Section{{Heading: "Packets", Text: intro}}
	for _, kind := range TrafficKinds() {
		if s := r.traffic(kind); len(s.Rows) > 0 {
			all = append(all, s)
		}
	}
	return all
}

// ends says where client and server are.
func (p *Packets) ends() string {
	if p.Nodes > 1 {
		return "A pod each of two nodes; the name of a path ends with the traffic mode of both. Pods have the same MTU in all modes. " +
			"\"vswitchd\" is about the client's node. Paths without an agent have no second node."
	}
	return "Two pods of one node."
}

// floor describes the floor.
func (p *Packets) floor() string {
	if p.Floor == PlainVeth {
		return "two pods at the ends of a veth pair with all offloads on, without a switch or an agent."
	}
	return "the same two pods on an Open vSwitch that switches by address, without an agent."
}

// traffic is about one kind of traffic.
func (r *Report) traffic(kind TrafficKind) measure.Section {
	heading, rate, operation := trafficWords(kind)
	s := measure.Section{
		Heading: heading, Left: 1,
		Header: []string{"backend", "policies", "peers", rate.what, "of floor", "p50", "p99", "max", "the first", "packets/s", "CPU a packet", "CPU " + operation, "CPUs", "vswitchd"},
	}
	for i := range r.Packets.Results {
		f := &r.Packets.Results[i]
		if f.Kind != kind {
			continue
		}
		policies, peers, ofFloor := "", "", ""
		if !slices.Contains(withoutAgent(), f.Backend) {
			policies, peers = measure.Grouped(int64(f.At.Policies)), measure.Grouped(int64(f.At.Peers))
		}
		if f.Backend != NoBackend {
			if floor := r.Packets.Find(NoBackend, f.At, kind); floor != nil {
				ofFloor = measure.Spread(f.PerSecond.Over(floor.PerSecond), measure.Multiples())
			}
		}
		quantiles := []string{"", "", ""}
		if f.Latency.Count > 0 {
			quantiles = []string{measure.Spread(f.Latency.P50Rounds, measure.Milliseconds()), measure.Spread(f.Latency.P99Rounds, measure.Milliseconds()), measure.Milliseconds().Print(f.Latency.Max)}
		}
		s.Rows = append(s.Rows, []string{
			f.Backend, policies, peers, measure.Spread(f.PerSecond, rate.unit), ofFloor, quantiles[0], quantiles[1], quantiles[2], measure.Spread(f.First, measure.Milliseconds()),
			measure.Middle(f.PacketsPerSecond, measure.Plain()), measure.Spread(f.CPUPerPacket, measure.Microseconds()), measure.Spread(f.CPUPerOperation, perOperationUnit(kind)),
			measure.Middle(f.CPU, measure.Plain()), measure.Middle(f.SwitchCPU, measure.Plain()),
		})
	}
	return s
}

// rate is the unit of the figure per second.
type rate struct {
	what string
	unit measure.Unit
}

// trafficWords are a kind's heading, rate, and operation in words.
func trafficWords(kind TrafficKind) (heading string, r rate, operation string) {
	switch kind {
	case Connections:
		return "Packets: new TCP connections, one after the other", rate{"connections/s", measure.Plain()}, "a connection"
	case ParallelConnections:
		return fmt.Sprintf("Packets: new TCP connections, %d clients at a time", ParallelClients), rate{"connections/s", measure.Plain()}, "a connection"
	case RoundTrips:
		return "Packets: round trips of one byte on a TCP connection", rate{"round trips/s", measure.Plain()}, "a round trip"
	}
	return "Packets: one TCP stream, one way", rate{"throughput", measure.Megabits()}, "a GB"
}

func perOperationUnit(kind TrafficKind) measure.Unit {
	if kind == Stream {
		return measure.Seconds(1)
	}
	return measure.Microseconds()
}
