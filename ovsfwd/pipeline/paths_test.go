package pipeline

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// names are the addresses of one family.
type names struct {
	pod0, pod1, gateway, node, peerPod, peer, outside, service, unknown, hairpin string
	// transport is where the header of TCP or UDP begins in a frame.
	transport int
}

func families() []names {
	return []names{
		{
			"10.10.0.2", "10.10.0.3", "10.10.0.1", nodeAddress, "10.10.1.5", peerAddress, outside, "10.96.0.10", "10.10.0.99",
			Hairpin(model.IPv4).String(), 14 + 20,
		},
		{
			"fd00:10:10::2", "fd00:10:10::3", "fd00:10:10::1", "fd77::100", "fd00:10:10:1::5", "fd77::101", "2001:db8::8",
			"fd00:10:96::10", "fd00:10:10::99", Hairpin(model.IPv6).String(), 14 + 40,
		},
	}
}

// everybodyMay isolates both pods and lets each rule of the lab's paths through,
// so that every path meets a rule on both ends.
func everybodyMay(pods uint32) []openflow.Flow {
	var flows []openflow.Flow
	for i, f := range families() {
		for _, pod := range []string{f.pod0, f.pod1} {
			flows = append(flows, isolateEgress(pod))
			for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
				flows = append(flows, allowEgress(2, from(single(netip.MustParseAddr(pod))).Protocol(protocol)))
			}
		}
		for port := range pods {
			flows = append(flows, isolateIngress(3+port, ipFamilies()[i]))
			for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
				flows = append(flows, allowIngress(3, ipFamilies()[i].Protocol(protocol).Bits(openflow.Reg1, 3+port, exactMark)))
			}
		}
	}
	return flows
}

// TestPaths sends a packet along every way there is, and its answer back, without
// policy and with rules on both ends, in both families. Answers go from port 53.
func TestPaths(t *testing.T) {
	for _, test := range []struct {
		name   string
		policy []openflow.Flow
		admin  bool
		// other has the flows of the other release of the reference.
		other bool
	}{
		{"no policy", nil, false, false},
		{"rules on both ends", everybodyMay(2), false, false},
		{"by way of the admin tier", everybodyMay(2), true, false},
		{"with the flows of the other release", everybodyMay(2), false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLabOf(t, func(n *Node) { n.AdminIngress = test.admin }, func(flows []openflow.Flow) []openflow.Flow {
				return append(flows, test.policy...)
			})
			if test.other {
				toOtherRelease(t, l.Bridge)
			}
			for i, f := range families() {
				t.Run([]string{"IPv4", "IPv6"}[i], func(t *testing.T) {
					l.t = t
					localPaths(l, f)
					nodePaths(l, f)
					tunnelPaths(l, f)
					servicePaths(l, f)
					hairpinStream(l, f)
					dropped(l, f)
				})
			}
		})
	}
}

func localPaths(l *lab, f names) {
	a, b := l.pods[0].MAC, l.pods[1].MAC
	// Three times: the third datagram is established to the switch.
	for i := range 3 {
		p := l.udpProbe(f.pod0, f.pod1, 1000, 53)
		l.fromPod(0, b, p)
		l.comes("pod to pod", p, l.pod1, 64)
		p = l.udpProbe(f.pod1, f.pod0, 53, 1000)
		l.fromPod(1, a, p)
		l.comes("answer of a pod", p, l.pod0, 64)
		if i == 0 {
			p = l.udpProbe(f.pod0, f.pod1, 1001, 53)
			l.fromPod(0, l.node.GatewayMAC, p)
			got := l.comes("pod to pod, by the gateway's MAC address", p, l.pod1, 64)
			if got != nil && (!bytes.Equal(got[:6], b) || !bytes.Equal(got[6:12], l.node.GatewayMAC)) {
				l.t.Errorf("routed with MAC addresses % x", got[:12])
			}
		}
	}
}

func nodePaths(l *lab, f names) {
	a := l.pods[0].MAC
	toGateway := func(what string, i int, p probe) {
		l.t.Helper()
		if got := l.comes(what, p, l.gw, 64); got != nil && !bytes.Equal(got[:6], l.node.GatewayMAC) {
			l.t.Errorf("%s: to MAC address % x", what, got[:6])
		}
	}
	for i, own := range []string{f.gateway, f.node} {
		sport := uint16(2000 + i)
		for range 3 {
			p := l.udpProbe(own, f.pod0, sport, 53)
			l.fromGateway(a, p)
			l.comes("node to pod", p, l.pod0, 64)
			p = l.udpProbe(f.pod0, own, 53, sport)
			// With any MAC address that the pod has learned for it.
			l.fromPod(0, l.node.GatewayMAC, p)
			toGateway("answer to the node", i, p)
			p = l.udpProbe(f.pod0, own, 1000, 53)
			l.fromPod(0, l.node.GatewayMAC, p)
			toGateway("pod to its node", i, p)
			p = l.udpProbe(own, f.pod0, 53, 1000)
			l.fromGateway(a, p)
			l.comes("answer of the node", p, l.pod0, 64)
		}
	}
	for range 3 {
		p := l.udpProbe(f.pod0, f.outside, 1000, 53)
		l.fromPod(0, l.node.GatewayMAC, p)
		toGateway("pod to the outside", 0, p)
		p = l.udpProbe(f.outside, f.pod0, 53, 1000)
		l.fromGateway(a, p)
		l.comes("answer of the outside", p, l.pod0, 64)
		p = l.udpProbe(f.outside, f.pod0, 3000, 53)
		l.fromGateway(a, p)
		l.comes("outside to pod", p, l.pod0, 64)
		p = l.udpProbe(f.pod0, f.outside, 53, 3000)
		l.fromPod(0, l.node.GatewayMAC, p)
		toGateway("answer to the outside", 0, p)
	}
}

func tunnelPaths(l *lab, f names) {
	gateway := l.node.GatewayMAC
	for range 3 {
		for _, far := range []string{f.peerPod, f.peer} {
			p := l.udpProbe(f.pod0, far, 1000, 53)
			l.fromPod(0, gateway, p)
			l.comes("pod to "+far, p, l.underlay, 63)
			p = l.udpProbe(far, f.pod0, 53, 1000)
			l.fromPeer(p)
			if got := l.comes("answer of "+far, p, l.pod0, 63); got != nil && !bytes.Equal(got[6:12], gateway) {
				l.t.Errorf("from the tunnel with MAC address % x", got[6:12])
			}
			p = l.udpProbe(far, f.pod0, 3000, 53)
			l.fromPeer(p)
			l.comes(far+" to pod", p, l.pod0, 63)
			p = l.udpProbe(f.pod0, far, 53, 3000)
			l.fromPod(0, gateway, p)
			l.comes("answer to "+far, p, l.underlay, 63)

			for _, own := range []string{f.gateway, f.node} {
				p = l.udpProbe(far, own, 4000, 53)
				l.fromPeer(p)
				l.comes(far+" to "+own, p, l.gw, 64)
				p = l.udpProbe(own, far, 53, 4000)
				l.fromGateway(VirtualMAC(), p)
				l.comes("answer of "+own, p, l.underlay, 64)
				p = l.udpProbe(own, far, 4001, 53)
				l.fromGateway(VirtualMAC(), p)
				l.comes(own+" to "+far, p, l.underlay, 64)
				p = l.udpProbe(far, own, 53, 4001)
				l.fromPeer(p)
				l.comes("answer to "+own, p, l.gw, 64)
			}
		}
	}
}

// servicePaths plays the host's part too: it translates and sends back.
func servicePaths(l *lab, f names) {
	a, b, gateway := l.pods[0].MAC, l.pods[1].MAC, l.node.GatewayMAC
	for range 3 {
		toService := func() {
			p := l.udpProbe(f.pod0, f.service, 5000, 53)
			l.fromPod(0, gateway, p)
			l.comes("pod to Service", p, l.gw, 64)
		}
		answered := func() {
			p := l.udpProbe(f.service, f.pod0, 53, 5000)
			l.fromGateway(a, p)
			l.comes("answer of the Service", p, l.pod0, 64)
		}
		toService()
		p := l.udpProbe(f.pod0, f.pod1, 5000, 53)
		l.fromGateway(b, p)
		l.comes("to the local endpoint", p, l.pod1, 64)
		p = l.udpProbe(f.pod1, f.pod0, 53, 5000)
		l.fromPod(1, a, p)
		if got := l.comes("answer of the local endpoint", p, l.gw, 64); got != nil && !bytes.Equal(got[:6], gateway) {
			l.t.Errorf("answer of the endpoint: to MAC address % x", got[:6])
		}
		answered()

		p = l.udpProbe(f.pod0, f.peerPod, 5001, 53)
		l.fromGateway(VirtualMAC(), p)
		l.comes("to the remote endpoint", p, l.underlay, 64)
		p = l.udpProbe(f.peerPod, f.pod0, 53, 5001)
		l.fromPeer(p)
		l.comes("answer of the remote endpoint", p, l.gw, 64)
		answered()

		toService()
		p = l.udpProbe(f.hairpin, f.pod0, 5000, 53)
		l.fromGateway(a, p)
		got := l.comes("to itself", p, l.pod0, 64)
		if got != nil && !bytes.Contains(got, netip.MustParseAddr(f.hairpin).AsSlice()) {
			l.t.Error("to itself: the address that stands for the pod was not put back")
		}
		p = l.udpProbe(f.pod0, f.hairpin, 53, 5000)
		l.fromPod(0, gateway, p)
		l.comes("answer to itself", p, l.gw, 64)
		answered()

		// The endpoint's side of a Service of another node.
		p = l.udpProbe(f.peerPod, f.pod0, 5003, 53)
		l.fromGateway(a, p)
		l.comes("peer's pod by this node's port", p, l.pod0, 64)
		p = l.udpProbe(f.pod0, f.peerPod, 53, 5003)
		l.fromPod(0, gateway, p)
		l.comes("answer by this node's port", p, l.gw, 64)
	}
}

// hairpinStream is TCP: the switch sees each segment under two addresses.
func hairpinStream(l *lab, f names) {
	const syn, ack, fin = 2, 16, 1
	gateway := l.node.GatewayMAC
	client, server := uint32(100), uint32(500)
	there := func(flags byte) {
		p := l.segment(f.hairpin, f.pod0, 6000, 53, flags, client, server)
		client += uint32(len(p.mark))
		if flags&(syn|fin) != 0 {
			client++
		}
		l.fromGateway(l.pods[0].MAC, p)
		l.comes("segment to itself", p, l.pod0, 64)
	}
	back := func(flags byte) {
		p := l.segment(f.pod0, f.hairpin, 53, 6000, flags, server, client)
		server += uint32(len(p.mark))
		if flags&(syn|fin) != 0 {
			server++
		}
		l.fromPod(0, gateway, p)
		l.comes("segment of the answer to itself", p, l.gw, 64)
	}
	there(syn)
	back(syn | ack)
	for range 5 {
		there(ack)
		back(ack)
	}
	there(fin | ack)
	back(fin | ack)
	there(ack)
}

// dropped are packets that no pod may get.
func dropped(l *lab, f names) {
	a, b, gateway := l.pods[0].MAC, l.pods[1].MAC, l.node.GatewayMAC
	group, linkLocalPod := "224.0.0.251", ""
	if netip.MustParseAddr(f.pod0).Is6() {
		group, linkLocalPod = "ff02::fb", linkLocal(b).String()
	}
	for _, test := range []struct {
		what     string
		send     func(probe)
		src, dst string
	}{
		{"pod to an unknown address", func(p probe) { l.fromPod(0, gateway, p) }, f.pod0, f.unknown},
		{"pod to an unknown address, by a pod's MAC address", func(p probe) { l.fromPod(0, b, p) }, f.pod0, f.unknown},
		{"host to an unknown address", func(p probe) { l.fromGateway(nobodysMAC(), p) }, f.outside, f.unknown},
		{"tunnel to an unknown address", l.fromPeer, f.peerPod, f.unknown},
		{"tunnel to the outside", l.fromPeer, f.peerPod, f.outside},
		{"pod to all", func(p probe) { l.fromPod(0, broadcast(), p) }, f.pod0, group},
		{"host to all", func(p probe) { l.fromGateway(broadcast(), p) }, f.gateway, group},
		{"the hairpin address to another", func(p probe) { l.fromGateway(nobodysMAC(), p) }, f.hairpin, f.unknown},
		{"pod to the link-local address of another", func(p probe) { l.fromPod(0, b, p) }, f.pod0, linkLocalPod},
		{"host to the link-local address of a pod", func(p probe) { l.fromGateway(b, p) }, f.outside, linkLocalPod},
		{"pod to itself through the switch", func(p probe) { l.fromPod(0, a, p) }, f.pod0, f.pod0},
	} {
		if test.dst == "" {
			continue
		}
		for range 3 {
			p := l.udpProbe(test.src, test.dst, 1000, 53)
			test.send(p)
			l.nowhere(test.what, p)
		}
	}
	if linkLocalPod != "" {
		p := l.udpProbe(f.pod0, linkLocal(gateway).String(), 1000, 53)
		l.fromPod(0, gateway, p)
		l.comes("pod to the gateway's link-local address", p, l.gw, 64)
	}
}

func nobodysMAC() net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, 0x55} }
