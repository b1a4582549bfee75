package bench

import (
	"fmt"
	"slices"
	"time"

	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/measure"
)

// PlainVeth is a floor of two pods at the ends of one veth pair, with all of the
// kernel's offloads on. Reports that name no floor have an Open vSwitch with one
// flow that switches by address, and pods without transmit checksum offload.
const PlainVeth = "veth"

// TrafficKind is a kind of traffic between two pods.
type TrafficKind string

const (
	// Connections opens TCP connections, one after the other.
	Connections TrafficKind = "connections"
	// ParallelConnections opens TCP connections from ParallelClients clients at a time.
	ParallelConnections TrafficKind = "parallel-connections"
	// RoundTrips sends a byte to and fro on one TCP connection.
	RoundTrips TrafficKind = "round-trips"
	// Stream sends as much as it can on one TCP connection.
	Stream TrafficKind = "stream"
)

// ParallelClients is the number of clients of ParallelConnections. They are in one pod.
const ParallelClients = 16

// TrafficKinds returns all kinds, in the order in which they are measured.
func TrafficKinds() []TrafficKind {
	return []TrafficKind{Connections, ParallelConnections, RoundTrips, Stream}
}

// Packets are the measurements of packets between pods.
type Packets struct {
	// Duration is the time of each kind of traffic in a turn.
	Duration float64 `json:"durationSeconds"`
	// Datapath is the bridge's. Figures of the userspace datapath do not apply to
	// the kernel's.
	Datapath string `json:"datapath"`
	// Nodes is 2 if client and server are on two nodes. Reports without it have one node.
	Nodes int `json:"nodes,omitempty"`
	// Floor names the setup of NoBackend.
	Floor string `json:"floor,omitempty"`
	// RulesPerPolicy is the number of rules in each policy.
	RulesPerPolicy int `json:"rulesPerPolicy"`
	// Points are the numbers of policies and peers, in the order of the run.
	Points []workload.Point `json:"points"`
	// Results have one entry a point, kind and backend, in this order. Those of
	// paths without an agent are of no point: both numbers are zero.
	Results []PacketsResult `json:"results"`
}

// PacketsResult is one kind of traffic under one backend, at one number of policies
// and peers. Series have one value a round.
type PacketsResult struct {
	Backend string         `json:"backend"`
	At      workload.Point `json:"at"`
	Kind    TrafficKind    `json:"kind"`
	// PerSecond is connections, round trips, or bits of a stream.
	PerSecond measure.Series `json:"perSecond"`
	// PacketsPerSecond counts at the client's interface, both ways. Segments that an
	// interface merges count as one.
	PacketsPerSecond measure.Series `json:"packetsPerSecond"`
	// CPU is the CPU time of the whole machine, CPUPerPacket by packet of
	// the above and CPUPerOperation by connection, round trip, or gigabyte (1e9
	// bytes) of a stream, in seconds. They include sender, receiver and all other work of
	// the machine: compare them with those of NoBackend.
	CPU             measure.Series `json:"cpus"`
	CPUPerPacket    measure.Series `json:"cpuSecondsPerPacket"`
	CPUPerOperation measure.Series `json:"cpuSecondsPerOperation"`
	// SwitchCPU is the part of CPU that ovs-vswitchd used.
	SwitchCPU measure.Series `json:"switchCPUs"`
	// First is the time of the first connection after backend or policies were
	// changed: nothing is cached of its way. It is not in Latency.
	First measure.Series `json:"firstSeconds,omitempty"`
	// Latency is that of single connections or round trips.
	Latency measure.Latency `json:"latency,omitzero"`
}

// Find returns the result of a kind of traffic under a backend at a point, or
// nil. Those of paths without an agent are found at any point.
func (p *Packets) Find(backend string, at workload.Point, kind TrafficKind) *PacketsResult {
	return find(p.Results, func(r *PacketsResult) bool {
		return r.Backend == backend && r.Kind == kind && (r.At == at || slices.Contains(withoutAgent(), backend))
	})
}

// sample is one measurement of a kind of traffic.
type sample struct {
	// latencies are of single connections or round trips, took is the whole time, bytes
	// the length of a stream.
	latencies []time.Duration
	took      time.Duration
	bytes     int64
	// first is the time of the connection before all others.
	first time.Duration
	// packets counts at the client's interface, cpu is the use of the machine,
	// and inSwitch is the part of ovs-vswitchd.
	packets       uint64
	cpu, inSwitch time.Duration
}

// packetsResults are the results while they come in.
type packetsResults []*packetsResult

type packetsResult struct {
	PacketsResult
	latencies *measure.Latencies
}

// newPacketsResults makes a place for every result there will be.
func newPacketsResults(backends []string, points []workload.Point) packetsResults {
	var all packetsResults
	add := func(kind TrafficKind, at workload.Point, backend string) {
		all = append(all, &packetsResult{
			PacketsResult: PacketsResult{Backend: backend, At: at, Kind: kind}, latencies: measure.NewLatencies(),
		})
	}
	for _, kind := range TrafficKinds() {
		for _, name := range withoutAgent() {
			add(kind, workload.Point{}, name)
		}
	}
	for _, at := range points {
		for _, kind := range TrafficKinds() {
			for _, b := range backends {
				add(kind, at, b)
			}
		}
	}
	return all
}

func (all packetsResults) add(backend string, at workload.Point, kind TrafficKind, s sample) error {
	for _, r := range all {
		if r.Backend == backend && r.At == at && r.Kind == kind {
			return r.add(s)
		}
	}
	return fmt.Errorf("no results of %s, %s, %s", backend, at, kind)
}

// add adds a round.
func (r *packetsResult) add(s sample) error {
	seconds := s.took.Seconds()
	// The number of operations, and the divisor for the cost of one.
	count, perOperation := float64(len(s.latencies)), float64(len(s.latencies))
	if r.Kind == Stream {
		count, perOperation = float64(8*s.bytes), float64(s.bytes)/1e9
	}
	if count == 0 || s.packets == 0 {
		return fmt.Errorf("%s under %s: nothing got through", r.Kind, r.Backend)
	}
	cpu := s.cpu.Seconds()
	r.PerSecond = append(r.PerSecond, count/seconds)
	r.PacketsPerSecond = append(r.PacketsPerSecond, float64(s.packets)/seconds)
	r.CPU = append(r.CPU, cpu/seconds)
	r.CPUPerPacket = append(r.CPUPerPacket, cpu/float64(s.packets))
	r.CPUPerOperation = append(r.CPUPerOperation, cpu/perOperation)
	r.SwitchCPU = append(r.SwitchCPU, s.inSwitch.Seconds()/seconds)
	if r.Kind == Connections {
		r.First = append(r.First, s.first.Seconds())
	}
	return r.latencies.Record(s.latencies)
}

// collect returns the results with measurements.
func (all packetsResults) collect() []PacketsResult {
	var out []PacketsResult
	for _, r := range all {
		if len(r.PerSecond) == 0 {
			continue
		}
		if l := r.latencies.Latency(); l.Count > 0 {
			r.Latency = l
		}
		out = append(out, r.PacketsResult)
	}
	return out
}

// withoutAgent returns the paths without an agent, in the order in which they are measured.
func withoutAgent() []string { return []string{NoBackend, Switched, Multitenant, Routed} }
