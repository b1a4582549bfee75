package pipeline

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// lab is a cluster with the full pipeline, and a wire on every port: the test
// plays both pods, the host behind the gateway port and the peers.
type lab struct {
	*cluster
	t                        *testing.T
	gw, pod0, pod1, underlay *wire
	sent                     int
}

const (
	outside     = "8.8.8.8"
	nodeAddress = "192.168.77.100"
	peerAddress = "192.168.77.101"
)

// newLab starts a lab with some policy flows.
func newLab(t *testing.T, policy []openflow.Flow) *lab {
	t.Helper()
	return newLabOf(t, func(*Node) {}, func(flows []openflow.Flow) []openflow.Flow { return append(flows, policy...) })
}

// newLabOf starts a lab with a changed node and changed flows.
func newLabOf(t *testing.T, setUp func(*Node), edit func([]openflow.Flow) []openflow.Flow) *lab {
	t.Helper()
	full := fullNode()
	c := newClusterOf(t, true, func(n *Node) {
		n.Mode, n.PodCIDRs, n.ServiceCIDRs = Full, full.PodCIDRs, full.ServiceCIDRs
		n.HostAddresses = full.HostAddresses
		setUp(n)
	}, edit)
	l := &lab{
		cluster: c, t: t, gw: openWire(t, c.NS, "flx-gw0"),
		pod0: openWire(t, c.NS, "v0p"), pod1: openWire(t, c.NS, "v1p"), underlay: openWire(t, c.NS, "up0p"),
	}
	c.neighbour(peerAddress, farMAC())
	return l
}

func farMAC() net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, 0x99} }

// probe is one packet. It is known by its payload wherever it comes out.
type probe struct {
	src, dst     string
	sport, dport uint16
	proto        uint8
	// body replaces the transport header and payload.
	body []byte
	mark []byte
}

// udpProbe makes a datagram from a port to a port.
func (l *lab) udpProbe(src, dst string, sport, dport uint16) probe {
	l.sent++
	return probe{src: src, dst: dst, sport: sport, dport: dport, proto: 17, mark: fmt.Appendf(nil, "felixlike <%d>", l.sent)}
}

func (p probe) packet() []byte {
	src, dst := netip.MustParseAddr(p.src), netip.MustParseAddr(p.dst)
	body := p.body
	if body == nil {
		body = udp(p.sport, p.dport, p.mark)
	}
	return ip(src, dst, p.proto, 64, transport(src, dst, p.proto, body))
}

func (p probe) frame(dst, src net.HardwareAddr) []byte {
	etherType := uint16(0x0800)
	if netip.MustParseAddr(p.src).Is6() {
		etherType = 0x86dd
	}
	return ethernet(dst, src, etherType, p.packet())
}

// transport completes the checksum of a transport header.
func transport(src, dst netip.Addr, proto uint8, body []byte) []byte {
	at := map[uint8]int{1: 2, 58: 2, 17: 6, 6: 16}[proto]
	if at == 0 {
		return body
	}
	body = bytes.Clone(body)
	var pseudo []byte
	if proto != 1 {
		pseudo = slices.Concat(src.AsSlice(), dst.AsSlice(), []byte{0, proto}, binary.BigEndian.AppendUint16(nil, uint16(len(body))))
	}
	sum := slices.Concat(pseudo, body)
	if len(sum)%2 == 1 {
		sum = append(sum, 0)
	}
	binary.BigEndian.PutUint16(body[at:], checksum(sum))
	return body
}

// fromPod sends a packet of a pod to a MAC address, fromGateway one of the host
// to a pod's or the virtual one, fromPeer one of a peer through the tunnel.
func (l *lab) fromPod(i int, dst net.HardwareAddr, p probe) {
	[]*wire{l.pod0, l.pod1}[i].send(p.frame(dst, l.pods[i].MAC))
}

func (l *lab) fromGateway(dst net.HardwareAddr, p probe) { l.gw.send(p.frame(dst, l.node.GatewayMAC)) }

func (l *lab) fromPeer(p probe) {
	l.underlay.send(geneve(uplinkMAC(), farMAC(), peerAddress, nodeAddress, p.frame(VirtualMAC(), farMAC())))
}

// find returns the frame of a probe that came out of a port, without the tunnel's
// header.
func (w *wire) find(p probe) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.frames {
		if bytes.Contains(f, p.mark) {
			if inner := 14 + 20 + 8 + 8; len(f) > inner && f[23] == 17 && binary.BigEndian.Uint16(f[36:]) == 6081 {
				return f[inner:]
			}
			return f
		}
	}
	return nil
}

func (l *lab) name(w *wire) string {
	switch w {
	case l.gw:
		return "gateway"
	case l.pod0:
		return "pod 0"
	case l.pod1:
		return "pod 1"
	case l.underlay:
		return "tunnel"
	}
	return "nowhere"
}

// comes checks that a probe comes out of one port and of no other, with a time
// to live.
func (l *lab) comes(what string, p probe, to *wire, ttl uint8) []byte {
	l.t.Helper()
	var got []byte
	for deadline := time.Now().Add(5 * time.Second); got == nil && time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		got = to.find(p)
	}
	if got == nil {
		l.t.Errorf("%s: did not come to the %s", what, l.name(to))
		l.elsewhere(what, p, to)
		return nil
	}
	l.elsewhere(what, p, to)
	at := 14 + 8
	if netip.MustParseAddr(p.src).Is6() {
		at = 14 + 7
	}
	if got[at] != ttl {
		l.t.Errorf("%s: time to live %d at the %s, want %d", what, got[at], l.name(to), ttl)
	}
	return got
}

// elsewhere checks that a probe came out of no port but one.
func (l *lab) elsewhere(what string, p probe, but *wire) {
	l.t.Helper()
	for _, w := range []*wire{l.gw, l.pod0, l.pod1, l.underlay} {
		if w != but && w.find(p) != nil {
			l.t.Errorf("%s: came out to the %s", what, l.name(w))
		}
	}
}

// nowhere checks that a probe which was sent comes out of no port. Packets of one
// port are worked off in order, so one of each port that passes is the fence.
func (l *lab) nowhere(what string, p probe) {
	l.t.Helper()
	l.fence()
	l.elsewhere(what, p, nil)
}

func (l *lab) fence() {
	l.t.Helper()
	own := "10.10.0.1"
	for i := range l.pods {
		p := l.udpProbe([]string{"10.10.0.2", "10.10.0.3"}[i], own, 9, 9)
		l.fromPod(i, l.node.GatewayMAC, p)
		l.comes("fence of a pod", p, l.gw, 64)
	}
	p := l.udpProbe("10.10.1.77", own, 9, 9)
	l.fromPeer(p)
	l.comes("fence of the tunnel", p, l.gw, 64)
	l.sent++
	arp := arpFrame(1, l.node.GatewayMAC, l.node.GatewayMAC, own, fmt.Sprintf("10.10.0.%d", 10+l.sent%200))
	arp = append(arp, fmt.Appendf(nil, "fence <%d>", l.sent)...)
	l.gw.send(arp)
	if l.pod0.await(arp) == nil {
		l.t.Error("fence of the gateway: did not come")
	}
}

// Policy flows, as rules of one clause.

func isolateEgress(a string) openflow.Flow {
	return openflow.Flow{Table: TableEgressDefault, Priority: priorityNormal, Match: from(single(netip.MustParseAddr(a)))}
}

func isolateIngress(port uint32, f openflow.Match) openflow.Flow {
	return openflow.Flow{Table: TableIngressDefault, Priority: priorityNormal, Match: f.Bits(openflow.Reg1, port, exactMark)}
}

func allowEgress(id uint32, m openflow.Match) openflow.Flow {
	return allow(TableEgress, TableEgressMetrics, openflow.Reg5, id, 32, m)
}

func allowIngress(id uint32, m openflow.Match) openflow.Flow {
	return allow(TableIngress, TableIngressMetrics, openflow.Reg6, id, 0, m)
}

func allow(table, then uint8, register openflow.Field, id uint32, shift uint, m openflow.Match) openflow.Flow {
	return openflow.Flow{Table: table, Priority: priorityLow, Match: m, Actions: []openflow.Action{
		openflow.SetRegister(register, id),
		openflow.CT(openflow.CTSpec{Commit: true, Zone: Zone, Table: then, Exec: []openflow.Action{
			openflow.SetCTLabelBits(openflow.Label{Lo: uint64(id) << shift}, openflow.Label{Lo: 0xffffffff << shift}),
		}}),
	}}
}
