package pipeline

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// guard is a group of flows that the reference does not have, and a way through
// that is open without them.
type guard struct {
	name string
	// is picks the flows of the guard, which are left out; instead gives flows that
	// cannot be left out other actions.
	is      func(openflow.Flow) bool
	instead func(openflow.Flow) []openflow.Action
	// admin says that the admin tier judges ingress.
	admin bool
	// policy are the flows of policy while the way is tried.
	policy []openflow.Flow
	// try sends packets and returns one, and the port that it must not come to.
	try func(*lab) (probe, *wire)
}

func at(table uint8, priorities ...uint16) func(openflow.Flow) bool {
	return func(f openflow.Flow) bool { return f.Table == table && slices.Contains(priorities, f.Priority) }
}

func anyOf(is ...func(openflow.Flow) bool) func(openflow.Flow) bool {
	return func(f openflow.Flow) bool {
		return slices.ContainsFunc(is, func(one func(openflow.Flow) bool) bool { return one(f) })
	}
}

// fromPod0 is an egress rule that allows pod 0 everything; closed1 isolates pod 1
// from everybody, closed0 pod 0.
func fromPod0() openflow.Flow {
	return allowEgress(2, from(single(netip.MustParseAddr("10.10.0.2"))))
}

func closed0() openflow.Flow { return isolateIngress(3, openflow.IPv4()) }

func closed1() openflow.Flow { return isolateIngress(4, openflow.IPv4()) }

// egressOnlyTo isolates pod 0 but for one destination.
func egressOnlyTo(dst string) []openflow.Flow {
	return []openflow.Flow{
		isolateEgress("10.10.0.2"),
		allowEgress(2, from(single(netip.MustParseAddr("10.10.0.2"))).Addr(openflow.IPv4Dst, netip.MustParseAddr(dst))),
	}
}

// denied sends a datagram to a pod that takes none; an egress rule commits the
// connection. One by one: a batch is looked up before its first packet is committed.
func denied(l *lab) probe {
	l.t.Helper()
	p := l.udpProbe("10.10.0.2", "10.10.0.3", 1000, 2000)
	l.fromPod(0, l.pods[1].MAC, p)
	l.fence()
	return p
}

// answered sends a packet with the ports of an answer to it: the pods have agreed on ports.
func answered(l *lab) probe {
	l.t.Helper()
	p := l.udpProbe("10.10.0.3", "10.10.0.2", 2000, 1000)
	l.fromPod(1, l.pods[0].MAC, p)
	l.fence()
	return p
}

// afterAnswer tries a denied connection once the denied one has answered, which
// makes it established to the switch.
func afterAnswer(l *lab) (probe, *wire) {
	denied(l)
	if p := answered(l); l.pod0.find(p) == nil {
		l.t.Error("an answer that policy allows did not come")
	}
	return denied(l), l.pod1
}

// reopened has pod 0 open a connection to pod 1, closes it by policy, and has one of
// them open it again: to a switch that does not check sequence numbers it is still the
// one of before.
func reopened(from int, closing openflow.Flow) func(l *lab) (probe, *wire) {
	return func(l *lab) (probe, *wire) {
		const syn, ack = 2, 16
		l.Run("ovs-appctl", "-t", l.Daemons.VSwitchdControl(), "dpctl/ct-disable-tcp-seq-chk")
		there := func(flags byte, seq, ack uint32) probe {
			p := l.segment("10.10.0.2", "10.10.0.3", 1000, 80, flags, seq, ack)
			l.fromPod(0, l.pods[1].MAC, p)
			return p
		}
		l.comes("opening", there(syn, 100, 0), l.pod1, 64)
		p := l.segment("10.10.0.3", "10.10.0.2", 80, 1000, syn|ack, 500, 200)
		l.fromPod(1, l.pods[0].MAC, p)
		l.comes("answer", p, l.pod0, 64)
		l.comes("established", there(ack, 200, 600), l.pod1, 64)
		l.Run("ovs-ofctl", "-O", "OpenFlow15", "add-flow", "unix:"+l.Management(), closing.String())
		l.comes("established, under policy", there(ack, 300, 600), l.pod1, 64)
		if from == 1 {
			p := l.segment("10.10.0.3", "10.10.0.2", 80, 1000, syn, 1<<30, 0)
			l.fromPod(1, l.pods[0].MAC, p)
			return p, l.pod0
		}
		return there(syn, 1<<30, 0), l.pod1
	}
}

// reopenedWithoutPolicy opens a connection again when the flows of policy are gone; an
// egress rule is left, which gives the packet its state back.
func reopenedWithoutPolicy(l *lab) (probe, *wire) {
	l.Run("ovs-appctl", "-t", l.Daemons.VSwitchdControl(), "dpctl/ct-disable-tcp-seq-chk")
	p := l.segment("10.10.0.2", "10.10.0.3", 1000, 80, 2, 100, 0)
	l.fromPod(0, l.pods[1].MAC, p)
	l.comes("opening", p, l.pod1, 64)
	p = l.segment("10.10.0.3", "10.10.0.2", 80, 1000, 2|16, 500, 200)
	l.fromPod(1, l.pods[0].MAC, p)
	l.comes("answer", p, l.pod0, 64)
	l.fence() // of allowed connections from now on
	l.Run("ovs-ofctl", "-O", "OpenFlow15", "--strict", "del-flows", "unix:"+l.Management(), "table=110,priority=240,ip,reg0=0x10000/0x4010000")
	l.Run("ovs-appctl", "-t", l.Daemons.VSwitchdControl(), "revalidator/purge")
	p = l.segment("10.10.0.2", "10.10.0.3", 1000, 80, 16, 200, 600)
	l.fromPod(0, l.pods[1].MAC, p)
	l.comes("established", p, l.pod1, 64)
	p = l.segment("10.10.0.2", "10.10.0.3", 1000, 80, 2, 1<<30, 0)
	l.fromPod(0, l.pods[1].MAC, p)
	return p, l.pod1
}

// asking picks the flows of a table for segments that ask for a connection.
func asking(table uint8) func(openflow.Flow) bool {
	return func(f openflow.Flow) bool { return f.Table == table && strings.Contains(f.String(), "tcp_flags") }
}

func guards() []guard {
	known := anyOf(at(TableConntrackState, priorityNotAllowed, priorityRelated),
		at(TableAdminIngress, priorityAdminNotAllowed), at(TableIngress, priorityJudgeAgain))
	peersPod := openflow.IPv4().Addr(openflow.IPv4Src, netip.MustParseAddr("10.10.1.5"))
	return []guard{
		{
			name: "established, and not allowed", is: known,
			policy: []openflow.Flow{fromPod0(), closed1()}, try: afterAnswer,
		},
		{
			name: "the state comes back when an egress rule commits", is: at(TableIngress, priorityJudgeAgain),
			policy: []openflow.Flow{fromPod0(), closed1()}, try: afterAnswer,
		},
		{
			name: "the state comes back before the admin tier", is: at(TableAdminIngress, priorityAdminNotAllowed), admin: true,
			policy: []openflow.Flow{fromPod0(), {Table: TableAdminIngress, Priority: 14000, Match: openflow.IPv4().Bits(openflow.Reg1, 4, exactMark)}},
			try:    afterAnswer,
		},
		{
			name: "opened again, past egress policy", is: asking(TableConntrackState),
			try: reopened(0, isolateEgress("10.10.0.2")),
		},
		{
			name: "opened again by the other side, past its egress policy", is: asking(TableConntrackState),
			try: reopened(1, isolateEgress("10.10.0.3")),
		},
		{
			name: "opened again, past ingress policy when an egress rule commits", is: asking(TableL3Forwarding),
			policy: []openflow.Flow{fromPod0()}, try: reopened(0, closed1()),
		},
		{
			name: "opened again, past the admin tier when an egress rule commits", is: asking(TableL3Forwarding), admin: true,
			policy: []openflow.Flow{fromPod0()},
			try:    reopened(0, openflow.Flow{Table: TableAdminIngress, Priority: 14000, Match: openflow.IPv4().Bits(openflow.Reg1, 4, exactMark)}),
		},
		{
			// Pod 1 may not send, and pod 0 may not receive.
			name: "the answer to a denied connection", is: known,
			policy: []openflow.Flow{fromPod0(), closed0(), closed1(), isolateEgress("10.10.0.3")},
			try: func(l *lab) (probe, *wire) {
				denied(l)
				return answered(l), l.pod0
			},
		},
		{
			// Pod 1 answers, which both ends' policy allows: that packet, not the
			// connection.
			name:   "an answer allows nothing",
			policy: []openflow.Flow{fromPod0(), closed1(), allowEgress(5, from(single(netip.MustParseAddr("10.10.0.3"))))},
			try:    afterAnswer,
			instead: func(f openflow.Flow) []openflow.Action {
				if at(TableConntrackState, priorityNotAllowed)(f) {
					return []openflow.Action{openflow.CTClear(), openflow.GotoTable(TableDNAT)}
				}
				return nil
			},
		},
		{
			// An ICMP error about a denied connection, from a sender that pod 1 accepts, is no packet of that
			// connection.
			name:   "an error allows nothing",
			policy: []openflow.Flow{fromPod0(), closed1(), allowIngress(6, peersPod.Bits(openflow.Reg1, 4, exactMark))},
			try: func(l *lab) (probe, *wire) {
				denied(l)
				about := answered(l)
				about.mark = []byte("felixlike error")
				about.body = udp(about.sport, about.dport, about.mark)
				p := l.unreachable("10.10.1.5", "10.10.0.3", about)
				l.fromPeer(p)
				l.comes("error that policy allows", p, l.pod1, 63)
				return denied(l), l.pod1
			},
			instead: func(f openflow.Flow) []openflow.Action {
				if at(TableConntrackState, priorityRelated)(f) {
					return []openflow.Action{openflow.CTClear(), openflow.GotoTable(TableDNAT)}
				}
				return nil
			},
		},
		{
			name: "by the gateway's MAC address past the ingress of a pod",
			// A packet that comes back by another way than its connection is a new connection with another port (table 35).
			is: func(f openflow.Flow) bool {
				return at(TableL3Forwarding, priorityLocalLed, priorityLocalSwitched, priorityNotOutside)(f) || at(TableConntrackState, priorityCollides, priorityMovedKnown)(f)
			},
			policy: []openflow.Flow{closed1()},
			try: func(l *lab) (probe, *wire) {
				p := l.udpProbe("10.10.0.2", "10.10.0.3", 1000, 2000)
				l.fromPod(0, l.node.GatewayMAC, p)
				l.fence()
				if l.gw.find(p) != nil {
					// The host has it, and routes it back, when pod 1 has answered.
					answered(l)
					p = l.udpProbe("10.10.0.2", "10.10.0.3", 1000, 2000)
					l.fromGateway(l.pods[1].MAC, p)
				}
				return p, l.pod1
			},
		},
		{
			name: "judged for the outside, delivered to a pod", is: at(TableOutside, priorityOutside),
			policy: egressOnlyTo(outside),
			try: func(l *lab) (probe, *wire) {
				p := l.udpProbe("10.10.0.2", outside, 1000, 2000)
				l.fromPod(0, l.pods[1].MAC, p)
				return p, l.pod1
			},
		},
		{
			// To the node nothing is judged: were the MAC address believed, to no pod.
			name:   "judged for the own node, delivered to a pod",
			policy: []openflow.Flow{isolateEgress("10.10.0.2")},
			try: func(l *lab) (probe, *wire) {
				p := l.udpProbe("10.10.0.2", nodeAddress, 1000, 2000)
				l.fromPod(0, l.pods[1].MAC, p)
				return p, l.pod1
			},
			instead: func(f openflow.Flow) []openflow.Action {
				if at(TableDNAT, priorityHigh)(f) && strings.Contains(f.String(), nodeAddress) {
					return jump(TableL2Forwarding)
				}
				return nil
			},
		},
		{
			name: "the hairpin address from another side", is: at(TableDNAT, priorityNowhere),
			try: func(l *lab) (probe, *wire) {
				p := l.udpProbe("169.254.20.20", "10.10.1.5", 1000, 2000)
				l.fromGateway(VirtualMAC(), p)
				return p, l.underlay
			},
		},
		{
			name: "invalid in a connection that the gateway port began", is: at(TableConntrackState, priorityInvalid),
			try: func(l *lab) (probe, *wire) {
				p := l.segment(outside, "10.10.0.3", 1000, 80, 2, 100, 0)
				l.fromGateway(l.pods[1].MAC, p)
				size := uint32(len(p.mark))
				l.comes("opening", p, l.pod1, 64)
				p = l.segment("10.10.0.3", outside, 80, 1000, 2|16, 500, 101+size)
				l.fromPod(1, l.node.GatewayMAC, p)
				l.comes("answer", p, l.gw, 64)
				p = l.segment(outside, "10.10.0.3", 1000, 80, 16, 1<<30, 1<<30)
				l.fromGateway(l.pods[1].MAC, p)
				return p, l.pod1
			},
		},
		{
			// Port 53 of pod 1 is denied in the admin tier, which allows pod 0 to send there.
			name: "fragments past the ingress of a pod", is: at(TableEgressMetrics, priorityFragments), admin: true,
			policy: []openflow.Flow{
				allowEgress(2, openflow.IPv4().Protocol(model.UDP).Port(openflow.UDPDst, 53, 0xffff)),
				{Table: TableAdminIngress, Priority: 14000, Match: openflow.IPv4().Protocol(model.UDP).Port(openflow.UDPDst, 53, 0xffff)},
			},
			try: func(l *lab) (probe, *wire) {
				p := l.udpProbe("10.10.0.2", "10.10.0.3", 1000, 53)
				for _, f := range l.fragments(p, 7) {
					l.pod0.send(f)
				}
				l.fence()
				if l.pod1.find(p) == nil {
					// The same from the host, as the endpoint of a Service.
					for _, f := range l.fragments(p, 8) {
						copy(f[6:], l.node.GatewayMAC)
						l.gw.send(f)
					}
				}
				return p, l.pod1
			},
		},
		{
			// With the flows removed, an allowed connection goes on, and a new one does not begin.
			name: "past missing policy flows", is: at(TableOutput, priorityUnjudged),
			try: func(l *lab) (probe, *wire) {
				open := denied(l) // allowed here
				answered(l)
				if l.pod1.find(open) == nil {
					l.t.Fatal("a connection that policy allows is not opened")
				}
				l.Run("ovs-ofctl", "-O", "OpenFlow15", "--strict", "del-flows", "unix:"+l.Management(), "table=110,priority=240,ip,reg0=0x10000/0x4010000")
				l.Run("ovs-appctl", "-t", l.Daemons.VSwitchdControl(), "revalidator/purge")
				p := denied(l)
				if l.pod1.find(p) == nil {
					l.t.Error("an allowed connection does not go on")
				}
				p = l.udpProbe("10.10.0.2", "10.10.0.3", 1001, 2000)
				l.fromPod(0, l.pods[1].MAC, p)
				return p, l.pod1
			},
		},
		{
			name: "opened again, past missing policy flows", is: asking(TableOutput), try: reopenedWithoutPolicy,
		},
		{
			name: "an unknown address behind the tunnel of a peer", is: at(TableL3Forwarding, priorityNotOutside),
			try: func(l *lab) (probe, *wire) {
				p := l.udpProbe("10.10.0.2", "10.10.0.99", 1000, 2000)
				l.fromPod(0, l.node.GatewayMAC, p)
				return p, l.gw
			},
		},
	}
}

// without returns the flows without the guard.
func (g guard) without(t *testing.T, flows []openflow.Flow) []openflow.Flow {
	t.Helper()
	var out []openflow.Flow
	changed := false
	for _, f := range flows {
		if g.is != nil && g.is(f) {
			changed = true
			continue
		}
		if g.instead != nil {
			if actions := g.instead(f); actions != nil {
				f.Actions, changed = actions, true
			}
		}
		out = append(out, f)
	}
	if !changed {
		t.Fatal("no flow is of the guard")
	}
	return out
}

// TestGuards tries every way that the guards close, with them and without.
func TestGuards(t *testing.T) {
	for _, g := range guards() {
		for _, open := range []bool{false, true} {
			t.Run(map[bool]string{false: g.name, true: g.name + ", without the guard"}[open], func(t *testing.T) {
				t.Parallel() // most of the time is the switch's: its start, and the wait for packets
				l := newLabOf(t, func(n *Node) { n.AdminIngress, n.OrderedEgress = g.admin, g.admin }, func(flows []openflow.Flow) []openflow.Flow {
					if open {
						flows = g.without(t, flows)
					}
					return append(flows, g.policy...)
				})
				p, at := g.try(l)
				l.fence()
				switch came := at.find(p) != nil; {
				case came && !open:
					t.Errorf("came to the %s", l.name(at))
				case !came && open:
					t.Errorf("closed without the guard too: the guard does not close the way to the %s", l.name(at))
				}
			})
		}
	}
}
