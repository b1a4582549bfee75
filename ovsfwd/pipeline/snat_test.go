package pipeline

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/test/ovstest"
)

func routerMAC() net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, 0x01} }

func testSNAT(uplink uint32) *SNAT {
	return &SNAT{
		Uplink: uplink, Host: openflow.LocalPort, Address: netip.MustParseAddr(nodeAddress), First: 10000, Last: 20000,
		MAC: uplinkMAC(), Router: routerMAC(),
	}
}

// snatLab is a lab whose uplink is a port of the bridge; the local port is the host's.
type snatLab struct {
	*lab
	host *wire
}

const snatUplink = 77

// exempt is an outside address that is an exception.
const exempt = "203.0.113.9"

func newSNATLab(t *testing.T, setUp func(*Node), policy ...openflow.Flow) *snatLab {
	t.Helper()
	full := fullNode()
	c := newClusterOf(t, false, func(n *Node) {
		n.Mode, n.Userspace, n.PodCIDRs, n.ServiceCIDRs = Full, true, full.PodCIDRs, full.ServiceCIDRs
		n.HostAddresses, n.SNAT = full.HostAddresses, testSNAT(snatUplink)
		n.SNAT.Exceptions = []netip.Prefix{netip.MustParsePrefix(exempt + "/32")}
		setUp(n)
	}, func(flows []openflow.Flow) []openflow.Flow { return append(flows, policy...) })
	c.Run("ip", "-n", c.NS, "link", "add", "up0", "type", "veth", "peer", "name", "up0p")
	for _, device := range []string{"up0", "up0p", "br-int"} {
		c.Run("ip", "-n", c.NS, "link", "set", device, "up")
	}
	c.Run("ovs-vsctl", "--db=unix:"+c.Config.Socket, "--timeout=10", "add-port", "br-int", "up0", "--", "set", "interface", "up0", fmt.Sprintf("ofport_request=%d", snatUplink))
	ovstest.Poll(t, func() error {
		if out := c.Ofctl("dump-ports-desc"); !bytes.Contains([]byte(out), []byte("77(up0)")) {
			return fmt.Errorf("no port %d: %s", snatUplink, out)
		}
		return nil
	})
	l := &lab{
		cluster: c, t: t, gw: openWire(t, c.NS, "flx-gw0"),
		pod0: openWire(t, c.NS, "v0p"), pod1: openWire(t, c.NS, "v1p"), underlay: openWire(t, c.NS, "up0p"),
	}
	return &snatLab{l, openWire(t, c.NS, "br-int")}
}

// arrives checks that a probe comes out of one port and of no other, and returns its IPv4 packet.
func (l *snatLab) arrives(what string, p probe, to *wire) []byte {
	l.t.Helper()
	var got []byte
	for deadline := time.Now().Add(5 * time.Second); got == nil && time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		got = to.find(p)
	}
	l.elsewhere(what, p, to)
	if to != l.host && l.host.find(p) != nil {
		l.t.Errorf("%s: came out to the host", what)
	}
	if got == nil {
		l.t.Fatalf("%s: did not come", what)
	}
	return got
}

// lost checks that a probe which was sent before another one comes out of no port.
func (l *snatLab) lost(what string, p probe) {
	l.t.Helper()
	for i := range l.pods {
		last := l.udpProbe([]string{"10.10.0.2", "10.10.0.3"}[i], "10.10.0.1", 9, 9)
		l.fromPod(i, l.node.GatewayMAC, last)
		l.arrives("fence of a pod", last, l.gw)
	}
	last := l.udpProbe("198.51.100.7", nodeAddress, 9, 9)
	l.fromOutside(last)
	l.arrives("fence of the uplink", last, l.host)
	l.elsewhere(what, p, nil)
	if l.host.find(p) != nil {
		l.t.Errorf("%s: came out to the host", what)
	}
}

func (l *snatLab) fromOutside(p probe) { l.underlay.send(p.frame(uplinkMAC(), routerMAC())) }
func (l *snatLab) fromHost(p probe)    { l.host.send(p.frame(routerMAC(), uplinkMAC())) }

// fourTuple is source, source port, destination and destination port of a frame.
func fourTuple(frame []byte) (src netip.Addr, sport uint16, dst netip.Addr, dport uint16) {
	src, _ = netip.AddrFromSlice(frame[26:30])
	dst, _ = netip.AddrFromSlice(frame[30:34])
	return src, binary.BigEndian.Uint16(frame[34:]), dst, binary.BigEndian.Uint16(frame[36:])
}

// leaves checks that a pod's packet leaves translated, and returns the port that it got.
func (l *snatLab) leaves(what string, p probe) uint16 {
	l.t.Helper()
	got := l.arrives(what, p, l.underlay)
	src, sport, dst, dport := fourTuple(got)
	if src != l.node.SNAT.Address || sport < l.node.SNAT.First || sport > l.node.SNAT.Last || dst.String() != p.dst || dport != p.dport {
		l.t.Errorf("%s: left as %s:%d -> %s:%d", what, src, sport, dst, dport)
	}
	if !bytes.Equal(got[:6], routerMAC()) || !bytes.Equal(got[6:12], uplinkMAC()) || got[22] != 63 {
		l.t.Errorf("%s: left with MAC addresses % x and time to live %d", what, got[:12], got[22])
	}
	return sport
}

// returns sends an answer from outside to a translated port, and checks that the pod gets it as its own.
func (l *snatLab) returns(what string, answer probe, to *wire, pod string, port uint16) {
	l.t.Helper()
	l.fromOutside(answer)
	got := l.arrives(what, answer, to)
	src, sport, dst, dport := fourTuple(got)
	if src.String() != answer.src || sport != answer.sport || dst.String() != pod || dport != port {
		l.t.Errorf("%s: came as %s:%d -> %s:%d", what, src, sport, dst, dport)
	}
}

// TestSNAT sends packets along the ways between pods, host and outside, without policy and with egress rules that
// commit connections.
func TestSNAT(t *testing.T) {
	for name, policy := range map[string][]openflow.Flow{"no policy": nil, "rules on both ends": everybodyMay(2)} {
		t.Run(name, func(t *testing.T) {
			l := newSNATLab(t, func(*Node) {}, policy...)
			streams(l)
			hostsOwn(l)
			untranslated(l)
			if policy == nil { // the rules allow TCP and UDP only
				byHost(l)
			}
			forged(l)
		})
	}
}

func streams(l *snatLab) {
	l.t.Helper()
	var ports [2]uint16
	for i, pod := range []string{"10.10.0.2", "10.10.0.3"} {
		for range 3 {
			p := l.udpProbe(pod, outside, 1000, 53)
			// The MAC address that a pod writes says nothing: here it is that of another pod.
			l.fromPod(i, l.pods[1-i].MAC, p)
			port := l.leaves("datagram", p)
			if ports[i] != 0 && ports[i] != port {
				l.t.Errorf("one connection has ports %d and %d", ports[i], port)
			}
			ports[i] = port
			l.returns("answer", l.udpProbe(outside, nodeAddress, 53, port), []*wire{l.pod0, l.pod1}[i], pod, 1000)
		}
	}
	if ports[0] == ports[1] {
		l.t.Errorf("two connections have port %d", ports[0])
	}
	const syn, ack, rst = 2, 16, 4
	l.Run("ovs-appctl", "-t", l.Daemons.VSwitchdControl(), "dpctl/ct-disable-tcp-seq-chk")
	// The second connection has the ports of the first one.
	for range 2 {
		p := l.segment("10.10.0.2", outside, 2000, 80, syn, 100, 0)
		l.fromPod(0, l.node.GatewayMAC, p)
		port := l.leaves("opening", p)
		l.returns("opening's answer", l.segment(outside, nodeAddress, 80, port, syn|ack, 500, 200), l.pod0, "10.10.0.2", 2000)
		p = l.segment("10.10.0.2", outside, 2000, 80, ack, 200, 600)
		l.fromPod(0, l.node.GatewayMAC, p)
		if again := l.leaves("established", p); again != port {
			l.t.Errorf("port %d, then %d", port, again)
		}
		l.returns("data", l.segment(outside, nodeAddress, 80, port, ack, 600, 200), l.pod0, "10.10.0.2", 2000)
		l.returns("reset", l.segment(outside, nodeAddress, 80, port, rst, 700, 200), l.pod0, "10.10.0.2", 2000)
	}
}

// hostsOwn checks the host's packets, and connections of host and pod with one port.
func hostsOwn(l *snatLab) {
	l.t.Helper()
	unchanged := func(what string, p probe, to *wire) {
		l.t.Helper()
		src, sport, dst, dport := fourTuple(l.arrives(what, p, to))
		if src.String() != p.src || sport != p.sport || dst.String() != p.dst || dport != p.dport {
			l.t.Errorf("%s: came as %s:%d -> %s:%d", what, src, sport, dst, dport)
		}
	}
	for range 2 {
		p := l.udpProbe(nodeAddress, outside, 12000, 123)
		l.fromHost(p)
		unchanged("host's own", p, l.underlay)
		p = l.udpProbe(outside, nodeAddress, 123, 12000)
		l.fromOutside(p)
		unchanged("answer to the host", p, l.host)
	}
	p := l.udpProbe(outside, nodeAddress, 5555, 10250)
	l.fromOutside(p)
	unchanged("to a port of the host", p, l.host)
	p = l.segment(outside, nodeAddress, 5555, 10250, 16, 7, 7)
	l.fromOutside(p)
	unchanged("a segment of no connection", p, l.host)
	// The tunnel's packets are not looked at.
	p = l.udpProbe(peerAddress, nodeAddress, 40000, 4789)
	l.fromOutside(p)
	unchanged("of a tunnel", p, l.host)

	p = l.udpProbe("10.10.0.2", outside, 3000, 443)
	l.fromPod(0, l.node.GatewayMAC, p)
	port := l.leaves("pod's", p)
	clash := l.udpProbe(nodeAddress, outside, port, 443)
	l.fromHost(clash)
	src, other, _, _ := fourTuple(l.arrives("host's, from the same port", clash, l.underlay))
	if src != l.node.SNAT.Address || other == port {
		l.t.Errorf("connections of pod and host leave as %s:%d", src, other)
	}
	p = l.udpProbe(outside, nodeAddress, 443, other)
	l.fromOutside(p)
	if _, _, _, got := fourTuple(l.arrives("answer to the host", p, l.host)); got != port {
		l.t.Errorf("the host gets its answer at port %d, want %d", got, port)
	}
	l.returns("answer to the pod", l.udpProbe(outside, nodeAddress, 443, port), l.pod0, "10.10.0.2", 3000)

	arp := arpFrame(1, routerMAC(), routerMAC(), "192.168.77.1", nodeAddress)
	l.underlay.send(arp)
	if l.host.await(arp) == nil {
		l.t.Error("ARP does not come to the host")
	}
	arp = arpFrame(2, uplinkMAC(), uplinkMAC(), nodeAddress, "192.168.77.1")
	l.host.send(arp)
	if l.underlay.await(arp) == nil {
		l.t.Error("ARP of the host does not leave")
	}
}

// untranslated checks which packets keep their source address, and which are dropped.
func untranslated(l *snatLab) {
	l.t.Helper()
	for what, dst := range map[string]string{"own node": nodeAddress, "gateway": "10.10.0.1", "Service": "10.96.0.10", "exception": exempt} {
		p := l.udpProbe("10.10.0.2", dst, 1000, 53)
		l.fromPod(0, l.node.GatewayMAC, p)
		if src, sport, _, _ := fourTuple(l.arrives(what, p, l.gw)); src.String() != p.src || sport != p.sport {
			l.t.Errorf("%s: came from %s:%d", what, src, sport)
		}
	}
	p := l.udpProbe("10.10.0.2", "10.10.0.3", 1000, 53)
	l.fromPod(0, l.node.GatewayMAC, p)
	l.arrives("pod to pod", p, l.pod1)
	p = l.udpProbe("fd00:10:10::2", "2001:db8::8", 1000, 53)
	l.fromPod(0, l.node.GatewayMAC, p)
	l.arrives("IPv6", p, l.gw)
	for what, dst := range map[string]string{"unused address": "10.10.0.99", "multicast": "224.0.0.5", "broadcast": "255.255.255.255"} {
		p := l.udpProbe("10.10.0.2", dst, 1000, 53)
		l.fromPod(0, l.node.GatewayMAC, p)
		l.lost(what, p)
	}
	p = l.udpProbe("10.10.0.2", outside, 1000, 53)
	l.fromPod(0, broadcast(), p)
	l.lost("broadcast MAC address", p)
}

// byHost checks that packets which the switch could not make unique, for want of ports, go to the host.
func byHost(l *snatLab) {
	l.t.Helper()
	for what, header := range map[string][]byte{"SCTP": {132, 3, 232, 0, 53, 0, 0, 0, 0, 0, 0, 0, 0}, "echo request": {1, 8, 0, 0, 0, 3, 9, 0, 1}, "protocol 99": {99}} {
		p := l.udpProbe("10.10.0.2", outside, 1000, 53)
		p.proto, p.body = header[0], append(header[1:], p.mark...)
		l.fromPod(0, l.node.GatewayMAC, p)
		if src, _, _, _ := fourTuple(l.arrives(what, p, l.gw)); src.String() != p.src {
			l.t.Errorf("%s: came to the host from %s", what, src)
		}
	}
}

// forged checks packets from the underlay that want to pass for a pod's, or for an answer.
func forged(l *snatLab) {
	l.t.Helper()
	p := l.udpProbe("10.10.0.2", outside, 4000, 53)
	l.fromPod(0, l.node.GatewayMAC, p)
	port := l.leaves("datagram", p)

	p = l.udpProbe("10.10.0.2", outside, 4000, 53)
	l.fromOutside(p)
	l.lost("pod's own packet, from the underlay", p)
	// The host gets the others, as without translation.
	for what, p := range map[string]probe{
		"another server":            l.udpProbe("8.8.4.4", nodeAddress, 53, port),
		"another port":              l.udpProbe(outside, nodeAddress, 54, port),
		"straight to the pod":       l.udpProbe(outside, "10.10.0.2", 53, 4000),
		"straight to an unused pod": l.udpProbe(outside, "10.10.0.99", 53, 4000),
	} {
		l.fromOutside(p)
		l.arrives(what, p, l.host)
	}
	const syn = 2
	s := l.segment("10.10.0.2", outside, 4001, 80, syn, 100, 0)
	l.fromPod(0, l.node.GatewayMAC, s)
	port = l.leaves("opening", s)
	s = l.segment(outside, nodeAddress, 80, port, syn, 9000, 0)
	l.fromOutside(s)
	l.lost("a server that asks for a connection", s)
}

// TestSNATDenied checks that policy judges before translation, by the pod's address.
func TestSNATDenied(t *testing.T) {
	l := newSNATLab(t, func(*Node) {}, egressOnlyTo(outside)...)
	p := l.udpProbe("10.10.0.2", outside, 1000, 53)
	l.fromPod(0, l.node.GatewayMAC, p)
	port := l.leaves("allowed", p)
	l.returns("answer", l.udpProbe(outside, nodeAddress, 53, port), l.pod0, "10.10.0.2", 1000)
	for range 2 {
		p = l.udpProbe("10.10.0.2", "198.51.100.7", 1000, 53)
		l.fromPod(0, l.node.GatewayMAC, p)
		l.lost("denied", p)
	}
}

// TestSNATExhausted checks that a packet that gets no port is dropped.
func TestSNATExhausted(t *testing.T) {
	l := newSNATLab(t, func(n *Node) { n.SNAT.Last = n.SNAT.First })
	p := l.udpProbe("10.10.0.2", outside, 1000, 53)
	l.fromPod(0, l.node.GatewayMAC, p)
	l.leaves("first", p)
	for range 3 {
		p = l.udpProbe("10.10.0.3", outside, 1000, 53)
		l.fromPod(1, l.node.GatewayMAC, p)
		l.lost("second", p)
	}
	p = l.udpProbe("10.10.0.3", outside, 1000, 54)
	l.fromPod(1, l.node.GatewayMAC, p)
	l.leaves("to another port", p)
}

// TestSNATOfServices: a connection through a Service to a server outside leaves with the node's address, and its answers come from the Service.
func TestSNATOfServices(t *testing.T) {
	f := families()[0]
	for name, policy := range map[string][]openflow.Flow{"no policy": nil, "egress to the endpoint": egressOnlyTo(outside)} {
		t.Run(name, func(t *testing.T) {
			flows := policy
			for _, s := range servicePort(f, portOutside, 0, f.outside) {
				flows = append(flows, Service(Node{GatewayPort: 2}, s)...)
			}
			l := newSNATLab(t, func(n *Node) { n.Services = true }, flows...)
			for i := range 3 {
				p := l.udpProbe(f.pod0, f.service, 7000, portOutside)
				l.fromPod(0, l.node.GatewayMAC, p)
				src, sport, dst, dport := fourTuple(l.arrives("datagram", p, l.underlay))
				if src.String() != nodeAddress || dst.String() != f.outside || dport != portEndpoint {
					t.Errorf("datagram %d: from %s to %s, port %d", i, src, dst, dport)
				}
				answer := l.udpProbe(f.outside, nodeAddress, portEndpoint, sport)
				l.fromOutside(answer)
				l.between("answer", l.arrives("answer", answer, l.pod0), f.service, f.pod0, portOutside, 7000)
			}
		})
	}
}

// TestSNATOfServiceAndEndpoint: a pod uses one source port for a Service and for its endpoints outside. Each connection leaves with a port of its own, and gets
// its own answers, also with rules that commit.
func TestSNATOfServiceAndEndpoint(t *testing.T) {
	f := families()[0]
	endpoints := []string{f.outside, "8.8.4.4", "9.9.9.9"}
	for name, policy := range map[string][]openflow.Flow{"no policy": nil, "rules on both ends": everybodyMay(2)} {
		t.Run(name, func(t *testing.T) {
			flows := policy
			for _, s := range servicePort(f, portAll, 0, endpoints...) {
				flows = append(flows, Service(Node{GatewayPort: 2}, s)...)
			}
			l := newSNATLab(t, func(n *Node) { n.Services = true }, flows...)
			answered := func(what, to, endpoint string, sport, dport, at uint16) {
				t.Helper()
				p := l.udpProbe(f.pod0, to, sport, dport)
				l.fromPod(0, l.node.GatewayMAC, p)
				frame := l.arrives(what, p, l.underlay)
				if frame == nil {
					return
				}
				src, from, dst, arrived := fourTuple(frame)
				if src.String() != nodeAddress || arrived != at || endpoint != "" && dst.String() != endpoint {
					t.Errorf("%s: from %s to %s, port %d", what, src, dst, arrived)
				}
				answer := l.udpProbe(dst.String(), nodeAddress, at, from)
				l.fromOutside(answer)
				l.between(what+", answer", l.arrives(what+", answer", answer, l.pod0), to, f.pod0, dport, sport)
			}
			for i := range uint16(3) {
				sport := 7200 + i
				for range 2 {
					for _, e := range endpoints {
						answered("directly to "+e, e, e, sport, portEndpoint, portEndpoint)
					}
					answered("through the Service", f.service, "", sport, portAll, portEndpoint)
				}
			}
		})
	}
}
