package pipeline

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// Ports of the Service in the tests: each has other endpoints, at port 8053.
const (
	portLocal, portRemote, portOutside, portAll, portSticky, portHosts uint16 = 53, 54, 55, 56, 57, 99
	portEndpoint                                                       uint16 = 8053
)

func servicePort(f names, port uint16, affinity time.Duration, endpoints ...string) []ServiceFrontend {
	var all []ServiceFrontend
	for _, p := range []model.Protocol{model.TCP, model.UDP} {
		s := ServiceFrontend{Address: netip.AddrPortFrom(netip.MustParseAddr(f.service), port), Protocol: p, Affinity: affinity}
		for _, e := range endpoints {
			a := netip.MustParseAddr(e)
			s.Endpoints = append(s.Endpoints, netip.AddrPortFrom(a, portEndpoint))
			if e == f.pod0 || e == f.pod1 {
				s.Own = append(s.Own, a)
			}
		}
		all = append(all, s)
	}
	return all
}

// newServiceLab starts a lab of which the bridge leads to Services.
func newServiceLab(t *testing.T, policy []openflow.Flow) *lab {
	t.Helper()
	return newLabOf(t, func(n *Node) { n.Services = true }, func(flows []openflow.Flow) []openflow.Flow { return slices.Concat(flows, servicesOfLab(), policy) })
}

func servicesOfLab() (flows []openflow.Flow) {
	for _, f := range families() {
		for _, s := range slices.Concat(
			servicePort(f, portLocal, 0, f.pod1), servicePort(f, portRemote, 0, f.peerPod), servicePort(f, portOutside, 0, f.outside),
			servicePort(f, portAll, 0, f.pod1, f.peerPod, f.outside), servicePort(f, portSticky, time.Hour, f.pod1, f.peerPod, f.outside),
		) {
			flows = append(flows, Service(Node{GatewayPort: 2}, s)...)
		}
	}
	return flows
}

// between checks the ends of a packet that came out.
func (l *lab) between(what string, frame []byte, src, dst string, sport, dport uint16) {
	l.t.Helper()
	if frame == nil {
		return
	}
	s, d := netip.MustParseAddr(src), netip.MustParseAddr(dst)
	addresses, ports := 14+12, 14+20
	if s.Is6() {
		addresses, ports = 14+8, 14+40
	}
	want := slices.Concat(s.AsSlice(), d.AsSlice())
	if got := frame[addresses : addresses+len(want)]; !bytes.Equal(got, want) {
		l.t.Errorf("%s: addresses % x, want % x", what, got, want)
	}
	if got := [2]uint16{binary.BigEndian.Uint16(frame[ports:]), binary.BigEndian.Uint16(frame[ports+2:])}; got != [2]uint16{sport, dport} {
		l.t.Errorf("%s: ports %d, want %d and %d", what, got, sport, dport)
	}
}

// TestServicesInTheBridge: packets to a Service go to its endpoint with the client's address and nothing passes the gateway port, and
// answers come from the Service; without policy, and with rules that commit at both ends.
func TestServicesInTheBridge(t *testing.T) {
	for name, policy := range map[string][]openflow.Flow{"no policy": nil, "rules on both ends": everybodyMay(2)} {
		t.Run(name, func(t *testing.T) {
			l := newServiceLab(t, policy)
			for i, f := range families() {
				t.Run([]string{"IPv4", "IPv6"}[i], func(t *testing.T) {
					l.t = t
					throughServices(l, f)
				})
			}
		})
	}
}

func throughServices(l *lab, f names) {
	gw := l.node.GatewayMAC
	for _, way := range []struct {
		name     string
		port     uint16
		endpoint string
		to       *wire
		ttl      uint8
		answer   func(probe)
		// back is the time to live of answers.
		back uint8
	}{
		{"a pod of this node", portLocal, f.pod1, l.pod1, 64, func(p probe) { l.fromPod(1, gw, p) }, 64},
		{"a pod of another node", portRemote, f.peerPod, l.underlay, 63, func(p probe) { l.fromPeer(p) }, 63},
		{"a server outside", portOutside, f.outside, l.gw, 64, func(p probe) { l.fromGateway(l.pods[0].MAC, p) }, 64},
	} {
		const syn, ack, fin = 2, 16, 1
		sport := 7000 + way.port
		client, server := uint32(100), uint32(500)
		for i, flags := range []byte{syn, ack, ack, ack | fin} {
			what := fmt.Sprintf("%s, segment %d", way.name, i)
			p := l.segment(f.pod0, f.service, sport, way.port, flags, client, server)
			client += uint32(len(p.mark)) + uint32(flags&(syn|fin))/2 + uint32(flags&fin)
			l.fromPod(0, gw, p)
			l.between(what, l.comes(what, p, way.to, way.ttl), f.pod0, way.endpoint, sport, portEndpoint)
			p = l.segment(way.endpoint, f.pod0, portEndpoint, sport, flags|ack, server, client)
			server += uint32(len(p.mark)) + uint32(flags&(syn|fin))/2 + uint32(flags&fin)
			way.answer(p)
			l.between(what+", answer", l.comes(what+", answer", p, l.pod0, way.back), f.service, f.pod0, way.port, sport)
		}
		for i := range 3 {
			what := fmt.Sprintf("%s, datagram %d", way.name, i)
			p := l.udpProbe(f.pod0, f.service, sport, way.port)
			l.fromPod(0, gw, p)
			l.between(what, l.comes(what, p, way.to, way.ttl), f.pod0, way.endpoint, sport, portEndpoint)
			p = l.udpProbe(way.endpoint, f.pod0, portEndpoint, sport)
			way.answer(p)
			l.between(what+", answer", l.comes(what+", answer", p, l.pod0, way.back), f.service, f.pod0, way.port, sport)
		}
		// A router says that a packet was too big. It knows the endpoint's address only.
		about := l.udpProbe(f.pod0, way.endpoint, sport, portEndpoint)
		p := l.unreachable(way.endpoint, f.pod0, about)
		way.answer(p)
		if got := l.comes(way.name+": error", p, l.pod0, way.back); got != nil {
			if n := bytes.Count(got, netip.MustParseAddr(f.service).AsSlice()); n != 2 {
				l.t.Errorf("%s: the error has the Service's address %d times, not outside and inside", way.name, n)
			}
		}
		// The client has closed its port. It knows the Service's address only.
		p = l.unreachable(f.pod0, f.service, l.udpProbe(f.service, f.pod0, way.port, sport))
		l.fromPod(0, gw, p)
		if got := l.comes(way.name+": error of the client", p, way.to, way.ttl); got != nil {
			if n := bytes.Count(got, netip.MustParseAddr(way.endpoint).AsSlice()); n != 2 {
				l.t.Errorf("%s: the client's error has the endpoint's address %d times, not outside and inside", way.name, n)
			}
		}
	}

	toHost := func(what string, from int, p probe) {
		l.t.Helper()
		l.fromPod(from, gw, p)
		l.between(what, l.comes(what, p, l.gw, 64), p.src, p.dst, p.sport, p.dport)
	}
	toHost("the endpoint itself", 1, l.udpProbe(f.pod1, f.service, 7100, portLocal))
	toHost("one of the endpoints", 1, l.segment(f.pod1, f.service, 7100, portAll, 2, 1, 0))
	toHost("no port of the Service", 0, l.udpProbe(f.pod0, f.service, 7100, 1))
	toHost("no cluster IP", 0, l.udpProbe(f.pod0, netip.MustParseAddr(f.service).Next().String(), 7100, portLocal))
}

// TestServicesOfTheHost: a connection that the host has goes on through it, also once the bridge knows an endpoint; another one does not. Fragments go
// to the host.
func TestServicesOfTheHost(t *testing.T) {
	l := newServiceLab(t, nil)
	f := families()[0]
	gw := l.node.GatewayMAC
	table := l.table(t)
	send := func(what string, sport uint16, to *wire) {
		t.Helper()
		p := l.udpProbe(f.pod0, f.service, sport, portHosts)
		l.fromPod(0, gw, p)
		l.comes(what, p, to, 64)
	}
	send("answered", 7000, l.gw)
	p := l.udpProbe(f.service, f.pod0, portHosts, 7000)
	l.fromGateway(l.pods[0].MAC, p)
	l.comes("answer", p, l.pod0, 64)
	send("not answered", 7001, l.gw)
	for _, s := range servicePort(f, portHosts, 0, f.pod1) {
		table.SetFlows("new "+s.Protocol.String(), func() []openflow.Flow { return Service(l.node, s) })
	}
	if _, err := table.Apply(l.Context()); err != nil {
		t.Fatal(err)
	}
	l.purge()
	send("answered, known to the bridge", 7000, l.gw)
	send("not answered, known to the bridge", 7001, l.gw)
	send("another connection", 7002, l.pod1)

	p = l.udpProbe(f.pod0, f.service, 7003, portLocal)
	for _, fragment := range l.fragments(p, 7) {
		copy(fragment, gw)
		l.pod0.send(fragment)
	}
	l.comes("fragments", p, l.gw, 64)

	// Those of a connection that the bridge has led to its endpoint go there.
	for range 2 {
		p = l.udpProbe(f.pod0, f.service, 7004, portLocal)
		l.fromPod(0, gw, p)
		l.comes("begun by the bridge", p, l.pod1, 64)
		p = l.udpProbe(f.pod1, f.pod0, portEndpoint, 7004)
		l.fromPod(1, gw, p)
		l.comes("answer", p, l.pod0, 64)
	}
	p = l.udpProbe(f.pod0, f.service, 7004, portLocal)
	for _, fragment := range l.fragments(p, 8) {
		copy(fragment, gw)
		l.pod0.send(fragment)
	}
	got := l.comes("fragments of a connection", p, l.pod1, 64)
	l.between("fragments of a connection", got, f.pod0, f.pod1, 7004, portEndpoint)
}

// table returns a table for flows of another owner.
func (l *lab) table(t *testing.T) *openflow.FlowTable {
	t.Helper()
	conn, err := openflow.Dial(l.Context(), l.Management())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	table := openflow.NewFlowTable(0xf1ff, Version)
	table.Connect(conn)
	return table
}

// purge has the datapath forget its cached flows.
func (l *lab) purge() { l.Run("ovs-appctl", "-t", l.Daemons.VSwitchdControl(), "revalidator/purge") }

// TestServicesAreJudged: policy judges a connection through a Service by the endpoint's address and port. What it denies is not allowed by an
// answer either, and without the flows of policy nothing begins.
func TestServicesAreJudged(t *testing.T) {
	f := families()[0]
	gw := func(l *lab) []byte { return l.node.GatewayMAC }
	begin := func(l *lab, what string, sport uint16, open bool) {
		l.t.Helper()
		for _, p := range []probe{l.udpProbe(f.pod0, f.service, sport, portLocal), l.segment(f.pod0, f.service, sport, portLocal, 2, 1, 0)} {
			l.fromPod(0, gw(l), p)
			if open {
				l.comes(what, p, l.pod1, 64)
			} else {
				l.nowhere(what, p)
			}
		}
	}
	for _, test := range []struct {
		name   string
		policy []openflow.Flow
		open   bool
		// committed: a rule that allows at one end commits the connection before the other end denies it.
		committed bool
	}{
		{"egress to the Service's address", egressOnlyTo(f.service), false, false},
		{"egress to the endpoint", egressOnlyTo(f.pod1), true, true},
		{"egress to another pod", egressOnlyTo(f.peerPod), false, false},
		{"closed endpoint", []openflow.Flow{closed1()}, false, false},
		{"closed endpoint, and a rule that commits", []openflow.Flow{closed1(), fromPod0()}, false, true},
		{"closed client", []openflow.Flow{closed0()}, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newServiceLab(t, test.policy)
			begin(l, test.name, 7000, test.open)
			begin(l, test.name+", again", 7000, test.open)
			p := l.udpProbe(f.pod1, f.pod0, portEndpoint, 7000)
			l.fromPod(1, gw(l), p)
			if test.open {
				l.between("answer", l.comes("answer", p, l.pod0, 64), f.service, f.pod0, portLocal, 7000)
				return
			}
			// To policy it is a connection of its own, which nothing here denies. After a rule that commits, it is an answer.
			l.between("no answer", l.comes("no answer", p, l.pod0, 64), f.pod1, f.pod0, portEndpoint, 7000)
			if test.committed {
				begin(l, test.name+", answered", 7000, false)
			}
		})
	}
}

// TestServicesWithoutPolicy: while the flows of policy are missing, no connection through a Service begins, and those that are allowed go on.
func TestServicesWithoutPolicy(t *testing.T) {
	l := newServiceLab(t, nil)
	f := families()[0]
	send := func(sport uint16) probe {
		p := l.udpProbe(f.pod0, f.service, sport, portLocal)
		l.fromPod(0, l.node.GatewayMAC, p)
		return p
	}
	l.comes("with policy", send(7000), l.pod1, 64)
	l.Run("ovs-ofctl", "-O", "OpenFlow15", "--strict", "del-flows", "unix:"+l.Management(), fmt.Sprintf("table=%d,priority=%d,ip,reg0=0x10000/0x4010000", TableOutput, priorityJudged))
	l.purge()
	denied := send(7001)
	l.comes("allowed before", send(7000), l.pod1, 64) // behind the other one
	l.elsewhere("without policy", denied, nil)
}

// TestServiceAndEndpoint: a pod uses one source port for a Service and directly for its endpoint, in both orders. The second connection
// gets another port, and each gets its own answers.
func TestServiceAndEndpoint(t *testing.T) {
	for name, policy := range map[string][]openflow.Flow{"no policy": nil, "rules on both ends": everybodyMay(2)} {
		l := newServiceLab(t, policy)
		for i, f := range families() {
			for _, first := range []string{f.service, f.pod1} {
				t.Run(fmt.Sprintf("%s, %v, first %s", name, i, first), func(t *testing.T) {
					l.t = t
					const syn, ack = 2, 16
					gw := l.node.GatewayMAC
					sport := uint16(9000 + len(first))
					second := map[string]string{f.service: f.pod1, f.pod1: f.service}[first]
					ports := map[string]uint16{f.service: portLocal, f.pod1: portEndpoint}
					seen := map[string]uint16{}
					size := map[string][2]uint32{}
					transport := f.transport
					round := func(to string, flags byte) {
						t.Helper()
						what := fmt.Sprintf("to %s, flags %#x", to, flags)
						at := size[to]
						p := l.segment(f.pod0, to, sport, ports[to], flags, 1000+at[0], at[1])
						l.fromPod(0, gw, p)
						got := l.comes(what, p, l.pod1, 64)
						if got == nil {
							return
						}
						from := binary.BigEndian.Uint16(got[transport:])
						if seen[to] == 0 {
							seen[to] = from
						}
						l.between(what, got, f.pod0, f.pod1, seen[to], portEndpoint)
						at[0] += uint32(len(p.mark)) + uint32(flags&syn)/2
						p = l.segment(f.pod1, f.pod0, portEndpoint, from, flags|ack, 5000+at[1], 1000+at[0])
						l.fromPod(1, gw, p)
						l.between(what+", answer", l.comes(what+", answer", p, l.pod0, 64), to, f.pod0, ports[to], sport)
						at[1] += uint32(len(p.mark)) + uint32(flags&syn)/2
						size[to] = at
					}
					for _, flags := range []byte{syn, ack, ack} {
						round(first, flags)
					}
					for _, flags := range []byte{syn, ack} {
						round(second, flags)
						round(first, ack)
					}
					if seen[first] != sport || seen[second] == sport || seen[second] < firstMovedPort {
						t.Errorf("source ports %v", seen)
					}
				})
			}
		}
	}
}

// TestTwoServicesOfOneEndpoint: a pod uses one source port for two Services with the same endpoint. Each connection gets its own answers.
func TestTwoServicesOfOneEndpoint(t *testing.T) {
	for name, policy := range map[string][]openflow.Flow{"no policy": nil, "rules on both ends": everybodyMay(2)} {
		l := newServiceLab(t, slices.Concat(policy, Service(Node{GatewayPort: 2}, servicePort(families()[0], portHosts, 0, families()[0].pod1)[0]), Service(Node{GatewayPort: 2}, servicePort(families()[0], portHosts, 0, families()[0].pod1)[1])))
		f := families()[0]
		t.Run(name, func(t *testing.T) {
			l.t = t
			for range 2 {
				for _, port := range []uint16{portLocal, portHosts} {
					what := fmt.Sprintf("to port %d", port)
					p := l.udpProbe(f.pod0, f.service, 7300, port)
					l.fromPod(0, l.node.GatewayMAC, p)
					got := l.comes(what, p, l.pod1, 64)
					if got == nil {
						continue
					}
					p = l.udpProbe(f.pod1, f.pod0, portEndpoint, binary.BigEndian.Uint16(got[f.transport:]))
					l.fromPod(1, l.node.GatewayMAC, p)
					l.between(what+", answer", l.comes(what+", answer", p, l.pod0, 64), f.service, f.pod0, port, 7300)
				}
			}
		})
	}
}

// endpointOf sends a segment that asks for a connection to a Service, and returns the port of the bridge that it comes out of.
func (l *lab) endpointOf(f names, port, sport uint16) *wire {
	l.t.Helper()
	p := l.segment(f.pod0, f.service, sport, port, 2, 1, 0)
	l.fromPod(0, l.node.GatewayMAC, p)
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Microsecond) {
		for _, w := range []*wire{l.pod1, l.underlay, l.gw} {
			if w.find(p) != nil {
				return w
			}
		}
	}
	l.t.Fatalf("from port %d: came out nowhere", sport)
	return nil
}

// TestEndpointsHaveEqualShares: 3,000 connections over three endpoints pass a chi-square test at 1 %, with few cached flows.
func TestEndpointsHaveEqualShares(t *testing.T) {
	const connections = 3000
	l := newServiceLab(t, nil)
	f := families()[0]
	wires := map[*wire]int{}
	before := map[*wire]int{}
	for _, w := range []*wire{l.pod1, l.underlay, l.gw} {
		before[w] = w.count()
	}
	for i := range uint16(connections) {
		p := l.segment(f.pod0, f.service, 10000+i, portAll, 2, 1, 0)
		l.pod0.send(p.frame(l.node.GatewayMAC, l.pods[0].MAC))
		if i%100 == 99 {
			l.fence()
		}
	}
	cached := strings.Count(l.Run("ovs-appctl", "-t", l.Daemons.VSwitchdControl(), "dpctl/dump-flows"), "\n")
	if cached > 256+64 { // one for each value of the hash, and those of the stages behind
		t.Errorf("%d cached flows for %d connections", cached, connections)
	}
	out := l.Run("ovs-appctl", "-t", l.Daemons.VSwitchdControl(), "dpctl/dump-conntrack", fmt.Sprintf("zone=%d", ServiceZone))
	for i, e := range []string{f.pod1, f.peerPod, f.outside} {
		wires[[]*wire{l.pod1, l.underlay, l.gw}[i]] = strings.Count(out, "reply=(src="+e+",")
	}
	sum, chi := 0, 0.0
	for _, n := range wires {
		sum += n
		chi += float64((n-connections/3)*(n-connections/3)) / (connections / 3)
	}
	if sum != connections || chi > 9.21 { // two degrees of freedom, 1 %
		t.Errorf("connections by endpoint: %v, chi-square %.1f", wires, chi)
	}
	t.Logf("chi-square %.2f, %d cached flows", chi, cached)
}

// TestShares: the parts of the slots are disjoint, have all slots, and differ by one at most.
func TestShares(t *testing.T) {
	for n := 1; n <= MaxEndpoints; n++ {
		count := slotsFor(n)
		owner := map[uint32]bool{}
		least, most := count, uint32(0)
		for _, part := range parts(count, n) {
			share := uint32(0)
			for _, b := range part {
				if b.first%b.size != 0 {
					t.Errorf("%d endpoints: a block of %d at %d", n, b.size, b.first)
				}
				for s := b.first; s < b.first+b.size; s++ {
					if owner[s] {
						t.Errorf("%d endpoints: slot %d twice", n, s)
					}
					owner[s] = true
				}
				share += b.size
			}
			least, most = min(least, share), max(most, share)
		}
		if len(owner) != int(count) || most > least+1 || (most-least)*8 > least {
			t.Errorf("%d endpoints: %d of %d slots, shares %d to %d", n, len(owner), count, least, most)
		}
	}
	same := netip.MustParseAddrPort("10.0.0.1:80")
	if ids := endpointIDs([]netip.AddrPort{same, same}); ids[0] == 0 || ids[1] != ids[0]+1 {
		t.Errorf("numbers %v", ids)
	}
}
