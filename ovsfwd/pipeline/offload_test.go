package pipeline

import (
	"net/netip"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/rules"
)

// TestOffloadOnlyInSteer: the full pipeline is the same with offload.
func TestOffloadOnlyInSteer(t *testing.T) {
	n := fullNode()
	want := string(render(all(n)))
	n.Offload = true
	if got := string(render(all(n))); got != want {
		t.Error("offload changes the full pipeline")
	}
}

// The ports of connections that hostMarks marks otherwise than as allowed and not translated.
const (
	unmarked  uint16 = 54 // the host lets them pass without allowing them
	unsettled uint16 = 55 // the host does not know yet whether it translates them
	rewritten uint16 = 56 // the host says that it translates them
)

// hostMarks stands for the host's netfilter: it marks the connection of each packet that the host
// sends into the bridge as allowed, and as not translated. UDP to the ports above gets fewer marks.
func hostMarks() []openflow.Flow {
	var flows []openflow.Flow
	mark := func(priority uint16, m openflow.Match, mark uint32) {
		flows = append(flows, openflow.Flow{Table: TableConntrack, Priority: priority, Match: m, Actions: []openflow.Action{
			openflow.CT(openflow.CTSpec{Commit: true, Table: TableL3Forwarding, Exec: []openflow.Action{openflow.SetCTMark(mark | 1)}}),
		}})
	}
	for _, ip := range ipFamilies() {
		m := ip.Bits(openflow.Reg0, sourceGW, sourceMask)
		mark(priorityHigh+1, m, marksDirect)
		for port, marks := range map[uint16]uint32{unmarked: 0, unsettled: rules.MarkAllowed | rules.MarkUntranslated, rewritten: marksSettled} {
			mark(priorityHigh+2, m.Protocol(model.UDP).Port(openflow.UDPDst, port, 0xffff), marks)
		}
	}
	return flows
}

// TestOffload sends packets of allowed and other connections along all ways. The test plays the
// host. On the userspace datapath the bridge's own zone 0 stands for the host's.
func TestOffload(t *testing.T) {
	l := newLabOf(t, func(n *Node) { n.Mode, n.Offload = Steer, true }, func(flows []openflow.Flow) []openflow.Flow {
		return append(flows, hostMarks()...)
	})
	for i, f := range families() {
		t.Run([]string{"IPv4", "IPv6"}[i], func(t *testing.T) {
			l.t = t
			offloadedLocally(l, f)
			offloadedByTunnel(l, f)
			takesTheDetour(l, f)
			toThePeersGateway(l, f)
			fragmentsTakeTheDetour(l, f)
			segmentsTakeTheDetour(l, f)
		})
	}
}

// open has a connection allowed or not: its first packet comes to the host, which sends it on.
func (l *lab) open(f names, sport, dport uint16) {
	l.t.Helper()
	p := l.udpProbe(f.pod0, f.pod1, sport, dport)
	l.fromPod(0, l.node.GatewayMAC, p)
	l.comes("first packet", p, l.gw, 64)
	p = l.udpProbe(f.pod0, f.pod1, sport, dport)
	l.fromGateway(l.pods[1].MAC, p)
	l.comes("first packet, from the host", p, l.pod1, 64)
}

// switched checks that a frame came from the bridge's own routing.
func (l *lab) switched(what string, frame []byte, to *model.Attachment) {
	l.t.Helper()
	if frame != nil && (string(frame[:6]) != string(to.MAC) || string(frame[6:12]) != string(l.node.GatewayMAC)) {
		l.t.Errorf("%s: MAC addresses % x", what, frame[:12])
	}
}

func offloadedLocally(l *lab, f names) {
	for _, port := range []uint16{53, rewritten} {
		l.open(f, 1000, port)
		for range 2 {
			p := l.udpProbe(f.pod1, f.pod0, port, 1000)
			l.fromPod(1, l.node.GatewayMAC, p)
			l.switched("answer", l.comes("answer", p, l.pod0, 63), l.pods[0])
			p = l.udpProbe(f.pod0, f.pod1, 1000, port)
			l.fromPod(0, l.node.GatewayMAC, p)
			l.switched("next packet", l.comes("next packet", p, l.pod1, 63), l.pods[1])
		}
	}
	for _, port := range []uint16{unmarked, unsettled} {
		l.open(f, 1001, port)
		for range 2 {
			p := l.udpProbe(f.pod1, f.pod0, port, 1001)
			l.fromPod(1, l.node.GatewayMAC, p)
			l.comes("answer without a mark", p, l.gw, 64)
			p = l.udpProbe(f.pod0, f.pod1, 1001, port)
			l.fromPod(0, l.node.GatewayMAC, p)
			l.comes("packet without a mark", p, l.gw, 64)
		}
	}
}

func offloadedByTunnel(l *lab, f names) {
	// The destination of the first packet is a pod here, then a pod there.
	p := l.udpProbe(f.peerPod, f.pod0, 1000, 53)
	l.fromPeer(p)
	l.comes("first from the tunnel", p, l.gw, 64)
	p = l.udpProbe(f.peerPod, f.pod0, 1000, 53)
	l.fromGateway(l.pods[0].MAC, p)
	l.comes("first from the tunnel, from the host", p, l.pod0, 64)
	p = l.udpProbe(f.pod0, f.peerPod, 1001, 53)
	l.fromPod(0, l.node.GatewayMAC, p)
	l.comes("first to the tunnel", p, l.gw, 64)
	p = l.udpProbe(f.pod0, f.peerPod, 1001, 53)
	l.fromGateway(VirtualMAC(), p)
	l.comes("first to the tunnel, from the host", p, l.underlay, 64)
	// The answers establish both.
	p = l.udpProbe(f.pod0, f.peerPod, 53, 1000)
	l.fromPod(0, l.node.GatewayMAC, p)
	l.comes("answer to the tunnel", p, l.underlay, 63)
	p = l.udpProbe(f.peerPod, f.pod0, 53, 1001)
	l.fromPeer(p)
	l.comes("answer from the tunnel", p, l.pod0, 63)
	for range 2 {
		for _, ports := range [][2]uint16{{53, 1000}, {1001, 53}} {
			p = l.udpProbe(f.pod0, f.peerPod, ports[0], ports[1])
			l.fromPod(0, l.node.GatewayMAC, p)
			l.comes("to the tunnel", p, l.underlay, 63)
			p = l.udpProbe(f.peerPod, f.pod0, ports[1], ports[0])
			l.fromPeer(p)
			l.switched("from the tunnel", l.comes("from the tunnel", p, l.pod0, 63), l.pods[0])
		}
	}
}

// establish has an allowed connection with answers. The host sends the packets of both ends, so that the
// connection has its mark whatever the bridge does with the packets of pods.
func (l *lab) establish(there, back probe) {
	l.fromGateway(nobodysMAC(), there)
	l.fromGateway(l.pods[0].MAC, back)
	l.comes("answer from the host", back, l.pod0, 64)
}

// establishUDP has an allowed connection between two ports.
func (l *lab) establishUDP(src, dst string, sport, dport uint16) {
	l.establish(l.udpProbe(src, dst, sport, dport), l.udpProbe(dst, src, dport, sport))
}

// echo makes an ICMP echo request, or its reply.
func (l *lab) echo(src, dst string, reply bool) probe {
	kinds := map[bool]byte{false: 8, true: 0}
	p := l.udpProbe(src, dst, 0, 0)
	p.proto = 1
	if netip.MustParseAddr(src).Is6() {
		p.proto, kinds = 58, map[bool]byte{false: 128, true: 129}
	}
	p.body = append([]byte{kinds[reply], 0, 0, 0, 0, 1, 0, 1}, p.mark...)
	return p
}

// takesTheDetour sends packets that only the host handles right. They are of allowed, established connections.
func takesTheDetour(l *lab, f names) {
	src, dst := netip.MustParseAddr(f.pod0), netip.MustParseAddr(f.pod1)
	etherType := uint16(0x0800)
	if src.Is6() {
		etherType = 0x86dd
	}
	l.establishUDP(f.pod0, f.pod1, 1010, 53)
	p := l.udpProbe(f.pod0, f.pod1, 1010, 53)
	l.fromPod(0, l.node.GatewayMAC, p)
	l.comes("established", p, l.pod1, 63)
	p = l.udpProbe(f.pod0, f.pod1, 1010, 53)
	l.pod0.send(ethernet(l.node.GatewayMAC, l.pods[0].MAC, etherType, ip(src, dst, 17, 1, transport(src, dst, 17, udp(1010, 53, p.mark)))))
	l.comes("last hop", p, l.gw, 1)
	for _, to := range []string{f.peer, f.gateway, f.node, f.outside, f.service, f.unknown} {
		l.establishUDP(f.pod0, to, 1010, 53)
		p = l.udpProbe(f.pod0, to, 1010, 53)
		l.fromPod(0, l.node.GatewayMAC, p)
		l.comes("to "+to, p, l.gw, 64)
	}
	l.establish(l.echo(f.pod0, f.pod1, false), l.echo(f.pod1, f.pod0, true))
	p = l.echo(f.pod0, f.pod1, false)
	l.fromPod(0, l.node.GatewayMAC, p)
	l.comes("ICMP", p, l.gw, 64)
	// A forged source is dropped before.
	p = l.udpProbe(f.pod1, f.pod0, 53, 1010)
	l.fromPod(0, l.node.GatewayMAC, p)
	l.nowhere("forged source", p)
	p = l.udpProbe(f.pod1, f.pod0, 53, 1010)
	l.fromPeer(p)
	l.nowhere("forged source from the tunnel", p)
}

// toThePeersGateway: the address is of the peer's pod prefix.
func toThePeersGateway(l *lab, f names) {
	gateway := testPeer().Gateway(model.FamilyOf(netip.MustParseAddr(f.pod0))).String()
	l.establishUDP(f.pod0, gateway, 1020, 53)
	p := l.udpProbe(f.pod0, gateway, 1020, 53)
	l.fromPod(0, l.node.GatewayMAC, p)
	l.comes("to the peer's gateway", p, l.underlay, 63)
}

// fragmentsTakeTheDetour sends fragments of an allowed connection.
func fragmentsTakeTheDetour(l *lab, f names) {
	l.establishUDP(f.pod0, f.pod1, 1030, 53)
	p := l.udpProbe(f.pod0, f.pod1, 1030, 53)
	for _, fragment := range l.fragments(p, 7) {
		l.pod0.send(fragment)
	}
	l.comes("fragments", p, l.gw, 64)
	l.fence()
	l.elsewhere("fragments", p, l.gw)
}

// segmentsTakeTheDetour: a segment that asks for a connection goes to the host, also from the ports of
// an allowed one, and so do its answer and a reset. The others of that connection do not.
func segmentsTakeTheDetour(l *lab, f names) {
	const syn, rst, ack = 0x02, 0x04, 0x10
	p := l.segment(f.pod0, f.pod1, 2000, 80, syn, 1000, 0)
	l.fromPod(0, l.node.GatewayMAC, p)
	l.comes("SYN", p, l.gw, 64)
	p = l.segment(f.pod0, f.pod1, 2000, 80, syn, 1000, 0)
	l.fromGateway(l.pods[1].MAC, p)
	l.comes("SYN, from the host", p, l.pod1, 64)
	next := 1001 + uint32(len(p.mark)) // a SYN may have data
	p = l.segment(f.pod1, f.pod0, 80, 2000, syn|ack, 5000, next)
	l.fromPod(1, l.node.GatewayMAC, p)
	l.comes("SYN and ACK", p, l.gw, 64)
	p = l.segment(f.pod1, f.pod0, 80, 2000, syn|ack, 5000, next)
	l.fromGateway(l.pods[0].MAC, p)
	l.comes("SYN and ACK, from the host", p, l.pod0, 64)
	other := 5001 + uint32(len(p.mark))
	for range 2 {
		p = l.segment(f.pod0, f.pod1, 2000, 80, ack, next, other)
		l.fromPod(0, l.node.GatewayMAC, p)
		l.comes("ACK", p, l.pod1, 63)
		next += uint32(len(p.mark))
	}
	p = l.segment(f.pod0, f.pod1, 2000, 80, syn, 9000, 0)
	l.fromPod(0, l.node.GatewayMAC, p)
	l.comes("SYN from the ports of an allowed connection", p, l.gw, 64)
	// The userspace datapath looks at the window. The kernel's does not, once the bridge has looked up the connection.
	p = l.segment(f.pod0, f.pod1, 2000, 80, ack, next+1<<30, other)
	l.fromPod(0, l.node.GatewayMAC, p)
	if l.Userspace() {
		l.comes("segment outside the window", p, l.gw, 64)
	} else {
		l.comes("segment outside the window", p, l.pod1, 63)
	}
	p = l.segment(f.pod0, f.pod1, 2000, 80, rst|ack, next, other)
	l.fromPod(0, l.node.GatewayMAC, p)
	l.comes("RST", p, l.gw, 64)
}
