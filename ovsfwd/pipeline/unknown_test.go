package pipeline

import (
	"slices"
	"testing"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

const syn, ack = 2, 16

// inMode programs the lab's flows for another mode, with a policy.
func (l *lab) inMode(mode Mode, policy []openflow.Flow) {
	l.t.Helper()
	l.node.Mode = mode
	l.Run("ovs-ofctl", "-O", "OpenFlow15", "del-flows", "unix:"+l.Management())
	install(l.t, l.Bridge, append(l.flows(), policy...))
}

// TestUnknownConnections: while the enforcement point changes, packets of connections that the switch does not know go to the host, and come
// from there past the switch's policy, also again and again. Only TCP connections begin in the switch, and only in the one mode.
func TestUnknownConnections(t *testing.T) {
	policy := everybodyMay(2) // no rule allows ICMP
	l := newLab(t, policy)
	for _, mode := range []Mode{BeginsInHost, BeginsInSwitch} {
		l.inMode(mode, policy)
		for _, f := range families() {
			what := mode.String() + ", " + f.pod0 + ": "
			a, b, gw := l.pods[0].MAC, l.pods[1].MAC, l.node.GatewayMAC
			for range 2 {
				p := l.udpProbe(f.pod0, f.pod1, 1000, 53)
				l.fromPod(0, b, p)
				l.comes(what+"datagram", p, l.gw, 64)
				p = l.udpProbe(f.pod0, f.pod1, 1000, 53)
				l.fromGateway(b, p)
				l.comes(what+"datagram from the host", p, l.pod1, 64)
				p = l.udpProbe(f.pod1, f.pod0, 53, 1000)
				l.fromPod(1, a, p)
				l.comes(what+"answer", p, l.gw, 64)
				p = l.udpProbe(f.peerPod, f.pod0, 1000, 53)
				l.fromPeer(p)
				l.comes(what+"datagram of a peer's pod", p, l.gw, 64)
				p = l.udpProbe(f.pod0, f.peerPod, 53, 1000)
				l.fromGateway(VirtualMAC(), p)
				l.comes(what+"datagram from the host to a peer's pod", p, l.underlay, 64)
				p = l.udpProbe(f.pod0, f.outside, 1000, 53)
				l.fromPod(0, gw, p)
				l.comes(what+"datagram to the outside", p, l.gw, 64)
			}
			p := l.echo(f.outside, f.pod0, false)
			l.fromGateway(a, p)
			l.comes(what+"echo request that the host has judged", p, l.pod0, 64)

			for _, flags := range []byte{ack, syn | ack} {
				p = l.segment(f.pod0, f.pod1, 1001, 80, flags, 100, 100)
				l.fromPod(0, b, p)
				l.comes(what+"segment", p, l.gw, 64)
				p = l.segment(f.pod0, f.pod1, 1001, 80, flags, 100, 100)
				l.fromGateway(b, p)
				l.comes(what+"segment from the host", p, l.pod1, 64)
			}
			p = l.segment(f.pod0, f.pod1, 1002, 80, syn, 100, 0)
			l.fromPod(0, b, p)
			l.comes(what+"request", p, map[Mode]*wire{BeginsInHost: l.gw, BeginsInSwitch: l.pod1}[mode], 64)
			p = l.segment(f.pod0, f.pod1, 1003, 80, syn, 100, 0)
			l.fromGateway(b, p)
			l.comes(what+"request from the host", p, l.pod1, 64)
			p = l.segment(f.pod1, f.pod0, 80, 1003, syn|ack, 100, 101+uint32(len(p.mark)))
			l.fromPod(1, a, p)
			l.comes(what+"its answer", p, l.gw, 64)
		}
	}
	l.inMode(BeginsInSwitch, []openflow.Flow{closed1()})
	p := l.segment("10.10.0.2", "10.10.0.3", 1004, 80, syn, 100, 0)
	l.fromPod(0, l.pods[1].MAC, p)
	l.nowhere("request that policy of the switch denies", p)
}

// TestLeadsToPolicy: an agent tells by the flows that it finds whether the switch judges.
func TestLeadsToPolicy(t *testing.T) {
	for _, n := range []Node{testNode(), offloadNode(), fullNode()} {
		for _, mode := range []Mode{Steer, BeginsInHost, BeginsInSwitch, Full} {
			n.Mode = mode
			if got := slices.ContainsFunc(Base(n), func(f openflow.Flow) bool { return LeadsToPolicy(f.Table) }); got != (mode != Steer) {
				t.Errorf("%s: %v", mode, got)
			}
		}
	}
}

// TestKnownConnections: what the switch knows stays there until the last mode. A connection that is asked for from the same ports begins where
// all connections begin.
func TestKnownConnections(t *testing.T) {
	policy := everybodyMay(2)
	l := newLab(t, policy)
	l.Run("ovs-appctl", "-t", l.Daemons.VSwitchdControl(), "dpctl/ct-disable-tcp-seq-chk") // as on a node with connections from another backend
	for _, f := range families() {
		l.inMode(Full, policy)
		a, b := l.pods[0].MAC, l.pods[1].MAC
		there := func(what string, flags byte, to *wire) {
			p := l.segment(f.pod0, f.pod1, 1000, 80, flags, 100, 100)
			l.fromPod(0, b, p)
			l.comes(what, p, to, 64)
		}
		back := func(what string, flags byte, to *wire) {
			p := l.segment(f.pod1, f.pod0, 80, 1000, flags, 100, 100)
			l.fromPod(1, a, p)
			l.comes(what, p, to, 64)
		}
		there("opening", syn, l.pod1)
		for _, mode := range []Mode{BeginsInSwitch, BeginsInHost} {
			l.inMode(mode, policy)
			back(mode.String()+": answer", syn|ack, l.pod0)
			there(mode.String()+": segment", ack, l.pod1)
			back(mode.String()+": segment of the server", ack, l.pod0)
			there(mode.String()+": request", syn, map[Mode]*wire{BeginsInHost: l.gw, BeginsInSwitch: l.pod1}[mode])
		}
		l.inMode(Steer, nil)
		there("steer: segment", ack, l.gw)
		back("steer: segment of the server", ack, l.gw)
	}
}

// TestServicesWhileThePlaceChanges: connections to Services begin in the host. Those that the bridge leads stay in the bridge, also if a request is sent
// again or policy's zone does not know the connection.
func TestServicesWhileThePlaceChanges(t *testing.T) {
	policy := everybodyMay(2)
	l := newServiceLab(t, policy)
	for i, f := range families() {
		l.inMode(Full, slices.Concat(servicesOfLab(), policy))
		gw, base := l.node.GatewayMAC, 7500+10*uint16(i)
		there := func(what string, sport uint16, flags byte, to *wire, dst string, dport uint16) {
			t.Helper()
			p := l.segment(f.pod0, f.service, sport, portLocal, flags, 100, 100)
			l.fromPod(0, gw, p)
			l.between(what, l.comes(what, p, to, 64), f.pod0, dst, sport, dport)
		}
		led := func(what string, sport uint16, flags byte) {
			t.Helper()
			there(what, sport, flags, l.pod1, f.pod1, portEndpoint)
		}
		datagram := func(what string, sport uint16, to *wire, dst string, dport uint16) {
			t.Helper()
			p := l.udpProbe(f.pod0, f.service, sport, portLocal)
			l.fromPod(0, gw, p)
			l.between(what, l.comes(what, p, to, 64), f.pod0, dst, sport, dport)
		}
		back := func(what string, flags byte) {
			t.Helper()
			p := l.segment(f.pod1, f.pod0, portEndpoint, base, flags, 100, 101)
			l.fromPod(1, gw, p)
			l.between(what, l.comes(what, p, l.pod0, 64), f.service, f.pod0, portLocal, base)
		}
		led("opening", base, syn)
		led("another one", base+1, syn)
		datagram("datagram", base+2, l.pod1, f.pod1, portEndpoint)
		for _, mode := range []Mode{BeginsInSwitch, BeginsInHost} {
			what := mode.String() + ", " + f.pod0 + ": "
			l.inMode(mode, policy)
			led(what+"request again", base+1, syn)
			back(what+"answer", syn|ack)
			led(what+"segment", base, ack)
			back(what+"segment of the server", ack)
			datagram(what+"datagram", base+2, l.pod1, f.pod1, portEndpoint)
			l.Run("ovs-appctl", "-t", l.Daemons.VSwitchdControl(), "dpctl/flush-conntrack", "zone=65520")
			led(what+"segment that policy's zone does not know", base, ack)
			sport := base + 4 + uint16(mode)
			for range 2 {
				there(what+"new request", sport, syn, l.gw, f.service, portLocal)
				datagram(what+"new datagram", sport, l.gw, f.service, portLocal)
			}
		}
	}
}
