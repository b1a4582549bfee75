package bench

import (
	"fmt"
)

// packets is about what packets find: a section for each kind of traffic.
func (r *Report) packets() []section {
	p := r.Packets
	intro := []string{
		fmt.Sprintf("Two pods of one node. So many policies of %d rules apply to the pod that is connected to; all rules but the last one of the last "+
			"policy name other peers or other ports, and that one allows so many pods, of which the client is one. %s, %s of each kind in a turn.",
			p.RulesPerPolicy, rounds(r.Rounds), duration(p.Duration)),
		"\"" + NoBackend + "\" is the floor: " + p.floor() + " " +
			"No policy is the floor of a backend: packets take its way, and nothing is asked. \"Of floor\" is the rate as a multiple of that of " +
			NoBackend + ", round by round.",
		"CPU is what the whole machine used, so sender and receiver are in it. \"vswitchd\" is the part of ovs-vswitchd, in CPUs. " +
			"\"The first\" is the first connection after backend or policies have changed, when nothing is cached of its way; it is not in the other figures. " +
			"Packets are counted at the client's interface, both ways; segments that it does not have to cut are counted as one.",
	}
	if p.Datapath == "netdev" {
		intro = append(intro, "The datapath is Open vSwitch's own in userspace, with connection tracking of its own: these figures "+
			"compare what the backends ask of it, and say nothing about the speed of the kernel's datapath.")
	}
	all := []section{{heading: "Packets", text: intro}}
	for _, kind := range TrafficKinds() {
		if s := r.traffic(kind); len(s.rows) > 0 {
			all = append(all, s)
		}
	}
	return all
}

// floor says what the floor is.
func (p *Packets) floor() string {
	if p.Floor == PlainVeth {
		return "two pods at the ends of a veth pair with all offloads on, without a switch or an agent."
	}
	return "the same two pods on an Open vSwitch that switches by address, without an agent."
}

// traffic is about one kind of traffic.
func (r *Report) traffic(kind TrafficKind) section {
	heading, rate, operation := trafficWords(kind)
	s := section{
		heading: heading, left: 1,
		header: []string{"backend", "policies", "peers", rate.what, "of floor", "p50", "p99", "max", "the first", "packets/s", "CPU a packet", "CPU " + operation, "CPUs", "vswitchd"},
	}
	for i := range r.Packets.Results {
		f := &r.Packets.Results[i]
		if f.Kind != kind {
			continue
		}
		policies, peers, ofFloor := "", "", ""
		if f.Backend != NoBackend {
			policies, peers = grouped(int64(f.At.Policies)), grouped(int64(f.At.Peers))
			if floor := r.Packets.Find(NoBackend, f.At, kind); floor != nil {
				ofFloor = spread(f.PerSecond.over(floor.PerSecond), multiples())
			}
		}
		quantiles := []string{"", "", ""}
		if f.Latency.Count > 0 {
			quantiles = []string{spread(f.Latency.P50Rounds, milliseconds()), spread(f.Latency.P99Rounds, milliseconds()), milliseconds().print(f.Latency.Max)}
		}
		s.rows = append(s.rows, []string{
			f.Backend, policies, peers, spread(f.PerSecond, rate.unit), ofFloor, quantiles[0], quantiles[1], quantiles[2], spread(f.First, milliseconds()),
			middle(f.PacketsPerSecond, plain()), spread(f.CPUPerPacket, microseconds()), spread(f.CPUPerOperation, perOperationUnit(kind)),
			middle(f.CPU, plain()), middle(f.SwitchCPU, plain()),
		})
	}
	return s
}

// rate is what is counted in a second.
type rate struct {
	what string
	unit unit
}

// trafficWords are a kind's heading, rate, and operation in words.
func trafficWords(kind TrafficKind) (heading string, r rate, operation string) {
	switch kind {
	case Connections:
		return "Packets: new TCP connections, one after the other", rate{"connections/s", plain()}, "a connection"
	case RoundTrips:
		return "Packets: round trips of one byte on a TCP connection", rate{"round trips/s", plain()}, "a round trip"
	}
	return "Packets: one TCP stream, one way", rate{"throughput", unit{" Mbit/s", 1e-6}}, "a GB"
}

func perOperationUnit(kind TrafficKind) unit {
	if kind == Stream {
		return unit{" s", 1}
	}
	return microseconds()
}

func microseconds() unit { return unit{" us", 1e6} }

func milliseconds() unit { return unit{" ms", 1e3} }
