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

// unmarked is the port of connections that the host lets pass without allowing them.
const unmarked = 54

// hostMarks stands for the host's netfilter: each packet that it sends to a pod or a peer is of a
// connection that policy allows, but for those to the port unmarked.
func hostMarks() []openflow.Flow {
	var flows []openflow.Flow
	for _, ip := range ipFamilies() {
		m := ip.Bits(openflow.Reg0, sourceGW, sourceMask)
		flows = append(flows, openflow.Flow{
			Table: TableConntrack, Priority: priorityHigh + 1, Match: m,
			Actions: []openflow.Action{openflow.CT(openflow.CTSpec{Commit: true, Table: TableL3Forwarding, Exec: []openflow.Action{openflow.SetCTMark(rules.MarkAllowed | 1)}})},
		}, openflow.Flow{
			Table: TableConntrack, Priority: priorityHigh + 2, Match: m.Protocol(model.UDP).Port(openflow.UDPDst, unmarked, 0xffff),
			Actions: []openflow.Action{openflow.CT(openflow.CTSpec{Commit: true, Table: TableL3Forwarding, Exec: []openflow.Action{openflow.SetCTMark(1)}})},
		})
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
			asksTakesTheDetour(l, f)
		})
	}
	l.t = t
	fragmentsTakeTheDetour(l)
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
	l.open(f, 1000, 53)
	for range 2 {
		p := l.udpProbe(f.pod1, f.pod0, 53, 1000)
		l.fromPod(1, l.node.GatewayMAC, p)
		l.switched("answer", l.comes("answer", p, l.pod0, 63), l.pods[0])
		p = l.udpProbe(f.pod0, f.pod1, 1000, 53)
		l.fromPod(0, l.node.GatewayMAC, p)
		l.switched("next packet", l.comes("next packet", p, l.pod1, 63), l.pods[1])
	}
	l.open(f, 1001, unmarked)
	for range 2 {
		p := l.udpProbe(f.pod1, f.pod0, unmarked, 1001)
		l.fromPod(1, l.node.GatewayMAC, p)
		l.comes("answer without a mark", p, l.gw, 64)
		p = l.udpProbe(f.pod0, f.pod1, 1001, unmarked)
		l.fromPod(0, l.node.GatewayMAC, p)
		l.comes("packet without a mark", p, l.gw, 64)
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

// takesTheDetour sends the packets that only the host handles right. All but the last two are of
// the allowed connection of offloadedLocally.
func takesTheDetour(l *lab, f names) {
	p := l.udpProbe(f.pod0, f.pod1, 1000, 53)
	src, dst := netip.MustParseAddr(f.pod0), netip.MustParseAddr(f.pod1)
	etherType := uint16(0x0800)
	if src.Is6() {
		etherType = 0x86dd
	}
	l.pod0.send(ethernet(l.node.GatewayMAC, l.pods[0].MAC, etherType, ip(src, dst, 17, 1, transport(src, dst, 17, udp(1000, 53, p.mark)))))
	l.comes("last hop", p, l.gw, 1)
	for _, to := range []string{f.peer, f.gateway, f.node, f.outside, f.service, f.unknown} {
		p = l.udpProbe(f.pod0, to, 1000, 53)
		l.fromPod(0, l.node.GatewayMAC, p)
		l.comes("to "+to, p, l.gw, 64)
	}
	p = l.udpProbe(f.pod0, f.pod1, 0, 0)
	p.proto, p.body = 1, append([]byte{8, 0, 0, 0, 0, 1, 0, 1}, p.mark...)
	if src.Is6() {
		p.proto, p.body[0] = 58, 128
	}
	for range 2 {
		l.fromPod(0, l.node.GatewayMAC, p)
		l.comes("ICMP", p, l.gw, 64)
	}
	// A forged source is dropped before.
	p = l.udpProbe(f.pod1, f.pod0, 53, 1000)
	l.fromPod(0, l.node.GatewayMAC, p)
	l.nowhere("forged source", p)
	p = l.udpProbe(f.pod1, f.pod0, 53, 1000)
	l.fromPeer(p)
	l.nowhere("forged source from the tunnel", p)
}

// fragmentsTakeTheDetour sends fragments of an allowed connection.
func fragmentsTakeTheDetour(l *lab) {
	p := l.udpProbe("10.10.0.2", "10.10.0.3", 1000, 53)
	for _, f := range l.fragments(p, 7) {
		l.pod0.send(f)
	}
	l.comes("fragments", p, l.gw, 64)
	l.fence()
	l.elsewhere("fragments", p, l.gw)
}

// asksTakesTheDetour: a segment that asks for a connection goes to the host, also from the ports of
// an allowed one. The others of that connection do not.
func asksTakesTheDetour(l *lab, f names) {
	const syn, ack = 0x02, 0x10
	p := l.segment(f.pod0, f.pod1, 2000, 80, syn, 1000, 0)
	l.fromPod(0, l.node.GatewayMAC, p)
	l.comes("SYN", p, l.gw, 64)
	p = l.segment(f.pod0, f.pod1, 2000, 80, syn, 1000, 0)
	l.fromGateway(l.pods[1].MAC, p)
	l.comes("SYN, from the host", p, l.pod1, 64)
	next := 1001 + uint32(len(p.mark)) // a SYN may have data
	p = l.segment(f.pod1, f.pod0, 80, 2000, syn|ack, 5000, next)
	l.fromPod(1, l.node.GatewayMAC, p)
	l.comes("SYN and ACK", p, l.pod0, 63)
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
	p = l.segment(f.pod0, f.pod1, 2000, 80, ack, next+1<<30, other)
	l.fromPod(0, l.node.GatewayMAC, p)
	l.comes("segment outside the window", p, l.gw, 64)
}
