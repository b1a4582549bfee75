package pipeline

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/internal/sctp"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// association sends packets of SCTP through the full pipeline, each of them
// different.
type association struct {
	*cluster
	t                 *testing.T
	gw, client, serve *wire
	table             *openflow.FlowTable
	sent              uint32
}

// newAssociation has two pods that admit nothing but SCTP to port 80 of the second
// one, each way of which an egress rule and an ingress rule let through.
func newAssociation(t *testing.T) *association {
	c := newCluster(t, false)
	c.node.Mode, c.node.Userspace = Full, true
	c.node.PodCIDRs = fullNode().PodCIDRs
	a := &association{
		cluster: c, t: t, table: openflow.NewFlowTable(Owner, Version),
		gw: openWire(t, c.NS, "flx-gw0"), client: openWire(t, c.NS, "v0p"), serve: openWire(t, c.NS, "v1p"),
	}
	conn, err := openflow.Dial(c.Context(), c.Management())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	a.table.Connect(conn)
	a.table.SetFlows("base", func() []openflow.Flow { return Base(c.node) })
	for _, pod := range c.pods {
		a.table.SetFlows(pod.Interface, func() []openflow.Flow { return Endpoint(c.node, pod) })
	}
	isolation := Judged()
	for _, f := range model.Families() {
		for _, pod := range c.pods {
			isolation = append(isolation, openflow.Flow{
				Table: TableIngressDefault, Priority: priorityNormal, Match: family(f).Bits(openflow.Reg1, pod.OFPort, ^uint32(0)),
			})
		}
	}
	a.table.SetFlows("isolation", func() []openflow.Flow { return isolation })
	a.table.SetFlows("allow", func() []openflow.Flow { return a.allow() })
	a.apply()
	return a
}

// allow are the actions of rules, for port 80.
func (a *association) allow() []openflow.Flow {
	var flows []openflow.Flow
	for _, f := range model.Families() {
		m := sctpOf(f).Port(openflow.SCTPDst, 80, 0xffff)
		for _, tables := range [][2]uint8{{TableEgress, TableEgressMetrics}, {TableIngress, TableIngressMetrics}} {
			flows = append(flows, openflow.Flow{
				Table: tables[0], Priority: priorityLow, Match: m,
				Actions: []openflow.Action{openflow.CT(openflow.CTSpec{Commit: true, Zone: Zone, Table: tables[1]})},
			})
		}
	}
	return flows
}

func (a *association) apply() {
	a.t.Helper()
	if _, err := a.table.Apply(a.Context()); err != nil {
		a.t.Fatal(err)
	}
}

// packet makes a packet that no other one equals.
func (a *association) packet(dstMAC, srcMAC net.HardwareAddr, src, dst netip.AddrPort) []byte {
	a.sent++
	l4 := sctp.Packet{SourcePort: src.Port(), DestinationPort: dst.Port(), Chunk: sctp.Init, InitiateTag: a.sent}.Marshal()
	etherType := uint16(0x0800)
	if src.Addr().Is6() {
		etherType = 0x86dd
	}
	return ethernet(dstMAC, srcMAC, etherType, ip(src.Addr(), dst.Addr(), uint8(model.SCTP), 64, l4))
}

// passes reports whether a frame comes out of a port, by the flows as they are
// now: the datapath would go by older ones for some milliseconds.
func (a *association) passes(from, to *wire, frame []byte) bool {
	a.t.Helper()
	a.Run("ovs-appctl", "-t", a.Daemons.VSwitchdControl(), "revalidator/purge")
	from.send(frame)
	a.sent++
	pod := a.pods[0]
	last := arpFrame(1, pod.MAC, pod.MAC, "10.10.0.2", fmt.Sprintf("10.11.%d.%d", a.sent/256, a.sent%256))
	if from == a.serve {
		pod = a.pods[1]
		last = arpFrame(1, pod.MAC, pod.MAC, "10.10.0.3", fmt.Sprintf("10.11.%d.%d", a.sent/256, a.sent%256))
	}
	if from == a.gw {
		last = arpFrame(1, a.node.GatewayMAC, a.node.GatewayMAC, "10.10.0.1", fmt.Sprintf("10.11.%d.%d", a.sent/256, a.sent%256))
	}
	from.send(last)
	if from != a.gw {
		if a.gw.await(last) == nil {
			a.t.Fatal("a right frame did not come to the gateway")
		}
		last = arpFrame(1, a.node.GatewayMAC, a.node.GatewayMAC, "10.10.0.1", fmt.Sprintf("10.11.%d.%d", a.sent/256, a.sent%256))
		a.gw.send(last)
	}
	if to != a.gw && to.await(last) == nil {
		a.t.Fatal("a right frame did not come through")
	}
	return to.got(frame) != nil
}

func TestAssociations(t *testing.T) {
	a := newAssociation(t)
	client, server, gateway := a.pods[0], a.pods[1], a.node.GatewayMAC
	for i, f := range model.Families() {
		t.Run(f.String(), func(t *testing.T) {
			a.t = t
			a.table.SetFlows("allow", func() []openflow.Flow { return a.allow() })
			a.apply()
			c := netip.AddrPortFrom(client.Addresses[i], 4000)
			s := netip.AddrPortFrom(server.Addresses[i], 80)
			port := func(e netip.AddrPort, n uint16) netip.AddrPort { return netip.AddrPortFrom(e.Addr(), n) }
			there := func(src, dst netip.AddrPort) bool {
				return a.passes(a.client, a.serve, a.packet(server.MAC, client.MAC, src, dst))
			}
			back := func(src, dst netip.AddrPort) bool {
				return a.passes(a.serve, a.client, a.packet(client.MAC, server.MAC, src, dst))
			}
			check := func(what string, got, want bool) {
				t.Helper()
				if got != want {
					t.Errorf("%s: passed %v", what, got)
				}
			}
			check("answer before the opening", back(s, c), false)
			check("port 81", there(c, port(s, 81)), false)
			check("port 80", there(c, s), true)
			check("port 81 beside an association", there(c, port(s, 81)), false)
			check("answer", back(s, c), true)
			check("answer of another port", back(port(s, 81), c), false)
			check("answer to another port", back(s, port(c, 4001)), false)
			check("port 81 beside an association that was answered", there(c, port(s, 81)), false)

			a.table.SetFlows("allow", func() []openflow.Flow { return nil })
			a.apply()
			check("new association after port 80 is denied", there(port(c, 4002), s), false)
			check("more of the old one", there(c, s), true)
			check("answer in the old one", back(s, c), true)
			a.table.SetFlows("allow", func() []openflow.Flow { return a.allow() })
			a.apply()

			// From the host, with the client's address as kube-proxy leaves it: answers go
			// back there, or the translation would not be undone.
			c = port(c, 5000)
			check("from the gateway", a.passes(a.gw, a.serve, a.packet(server.MAC, gateway, c, s)), true)
			answer := a.packet(client.MAC, server.MAC, s, c)
			check("answer to the gateway", a.passes(a.serve, a.gw, answer), true)
			check("answer past the gateway", a.client.got(answer) != nil, false)
			if got := a.gw.got(answer); got != nil && !slices.Equal(got[:6], gateway) {
				t.Errorf("answer to the gateway has the MAC address % x", got[:6])
			}
		})
	}
	if out := a.Run("ovs-appctl", "-t", a.Daemons.VSwitchdControl(), "dpctl/dump-conntrack"); strings.Contains(out, "labels=0x1") {
		t.Errorf("a connection of SCTP is allowed without its ports:\n%s", out)
	}
}

// TestAssociationsOfAnAddressAreForgotten: the next pod with the address inherits
// none, and the other pod keeps those that are not with it.
func TestAssociationsOfAnAddressAreForgotten(t *testing.T) {
	a := newAssociation(t)
	conn, err := openflow.Dial(a.Context(), a.Management())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client, server, gateway := a.pods[0], a.pods[1], a.node.GatewayMAC
	for i := range model.Families() {
		a.table.SetFlows("allow", func() []openflow.Flow { return a.allow() })
		a.apply()
		c, s := netip.AddrPortFrom(client.Addresses[i], 4000), netip.AddrPortFrom(server.Addresses[i], 80)
		outside := netip.AddrPortFrom(addrs("198.51.100.7", "2001:db8::7")[i], 4000)
		goesOn := func() (there, back, other bool) {
			there = a.passes(a.client, a.serve, a.packet(server.MAC, client.MAC, c, s))
			back = a.passes(a.serve, a.client, a.packet(client.MAC, server.MAC, s, c))
			return there, back, a.passes(a.gw, a.serve, a.packet(server.MAC, gateway, outside, s))
		}
		if there, back, other := goesOn(); !there || !back || !other {
			t.Fatalf("allowed: %v, answer %v, from outside %v", there, back, other)
		}
		a.table.SetFlows("allow", func() []openflow.Flow { return nil })
		a.apply()
		if err := conn.Bundle(a.Context(), func(yield func(openflow.FlowMod, error) bool) {
			for _, change := range ForgetAssociations(client.Addresses[i]) {
				if !yield(change, nil) {
					return
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		if there, back, other := goesOn(); there || back || !other {
			t.Errorf("with the address in other hands: passed %v, answer %v; from outside %v", there, back, other)
		}
	}
}

// TestDeniedPacketsDoNotDelayAssociations: the datapath's cached flow of denied packets from one address to
// another does not match the answers between them, even if it is never revalidated.
func TestDeniedPacketsDoNotDelayAssociations(t *testing.T) {
	a := newAssociation(t)
	client, server := a.pods[0], a.pods[1]
	appctl := func(command string) { a.Run("ovs-appctl", "-t", a.Daemons.VSwitchdControl(), command) }
	for i, f := range model.Families() {
		c, s := netip.AddrPortFrom(client.Addresses[i], 5000), netip.AddrPortFrom(server.Addresses[i], 80)
		denied := a.packet(client.MAC, server.MAC, netip.AddrPortFrom(s.Addr(), 81), netip.AddrPortFrom(c.Addr(), 5001))
		if a.passes(a.serve, a.client, denied) {
			t.Fatalf("%s: a packet that no rule allows passed", f)
		}
		appctl("revalidator/pause")
		opening, answer := a.packet(server.MAC, client.MAC, c, s), a.packet(client.MAC, server.MAC, s, c)
		a.client.send(opening)
		if a.serve.await(opening) == nil {
			t.Errorf("%s: the opening did not come through", f)
		}
		a.serve.send(answer)
		if a.client.await(answer) == nil {
			t.Errorf("%s: the answer did not come through", f)
		}
		appctl("revalidator/resume")
	}
}

// TestAnswersBesideManyAssociations: a pod that has begun many associations gets answers
// to the next one. Fifteen a second over their 210 seconds are those of a truth table.
func TestAnswersBesideManyAssociations(t *testing.T) {
	a := newAssociation(t)
	client, server := a.pods[0], a.pods[1]
	s := netip.AddrPortFrom(server.Addresses[0], 80)
	for i := range 3000 {
		opening := a.packet(server.MAC, client.MAC, netip.AddrPortFrom(client.Addresses[0], uint16(10000+i)), s)
		a.client.send(opening)
		if i%50 == 0 && a.serve.await(opening) == nil {
			t.Fatalf("packet %d did not come through", i)
		}
	}
	c := netip.AddrPortFrom(client.Addresses[0], 9999)
	if !a.passes(a.client, a.serve, a.packet(server.MAC, client.MAC, c, s)) {
		t.Error("the opening did not come through")
	}
	if !a.passes(a.serve, a.client, a.packet(client.MAC, server.MAC, s, c)) {
		t.Error("the answer did not come through")
	}
}

func TestAssociationsAreBounded(t *testing.T) {
	a := newAssociation(t)
	client, server := a.pods[0], a.pods[1]
	learned := func() int {
		return strings.Count(a.Ofctl("dump-flows", fmt.Sprintf("table=%d", TableAssociations)), "actions=")
	}
	var last []byte
	for i := range 2 * podAssociations {
		last = a.packet(server.MAC, client.MAC,
			netip.AddrPortFrom(client.Addresses[0], uint16(10000+i)), netip.AddrPortFrom(server.Addresses[0], 80))
		a.client.send(last)
		if i%50 == 0 && a.serve.await(last) == nil {
			t.Fatalf("packet %d did not come through", i)
		}
	}
	if !a.passes(a.client, a.serve, a.packet(server.MAC, client.MAC,
		netip.AddrPortFrom(client.Addresses[0], 9999), netip.AddrPortFrom(server.Addresses[0], 80))) {
		t.Error("an allowed packet that is not learned did not come through")
	}
	if n := learned(); n != 2*podAssociations {
		t.Errorf("%d flows are learned, want %d", n, 2*podAssociations)
	}
}

func TestOtherDatapathsTrackSCTP(t *testing.T) {
	n := fullNode()
	n.Userspace = false
	for _, f := range all(n) {
		if f.Table == TableAssociations || strings.Contains(f.String(), "sctp") {
			t.Errorf("%s", f)
		}
	}
}
