package e2e

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
)

const (
	etherLen = 14
	// markerPort takes the datagrams of these tests; nothing listens there.
	markerPort = 4242
)

// gatewayMAC returns the MAC of a node's gateway port.
func gatewayMAC(t *testing.T, n *lab.Node) net.HardwareAddr {
	t.Helper()
	return linkMAC(t, n.Namespace(), "flx-gw0")
}

func podMAC(t *testing.T, p *lab.Pod) net.HardwareAddr {
	t.Helper()
	return linkMAC(t, p.Namespace(), "eth0")
}

// markers counts the markers of all tests: an old one, or an ICMP error about it, may still wait in a wire.
var markers atomic.Uint64

// arrives sends a lie and then, again and again, an honest marker, until a
// marker arrives; it reports whether the lie had come first. The bridge keeps
// their order, so there is nothing to wait for after that.
func arrives(t *testing.T, victim *wire, lie func(), isLie func([]byte) bool, marker func(string)) bool {
	t.Helper()
	lie()
	for range 10 {
		text := fmt.Sprintf("marker %s %d.", t.Name(), markers.Add(1))
		marker(text)
		deadline := time.Now().Add(time.Second)
		for frame := victim.next(deadline); frame != nil; frame = victim.next(deadline) {
			if isLie(frame) {
				return true
			}
			if bytes.Contains(frame, []byte(text)) {
				return false
			}
		}
	}
	t.Fatal("no honest packet arrived either")
	return false
}

// comes sends a packet that policy allows, again every second, and reports whether one arrives within 10 s. There is no
// marker: one that follows a cached flow would overtake a packet for which the switch makes one.
func comes(victim *wire, send func(), is func([]byte) bool) bool {
	for range 10 {
		send()
		deadline := time.Now().Add(time.Second)
		for frame := victim.next(deadline); frame != nil; frame = victim.next(deadline) {
			if is(frame) {
				return true
			}
		}
	}
	return false
}

// TestSpoofingPod sends forged packets from pod x/a, to a pod of the
// same node and to one of another.
func TestSpoofingPod(t *testing.T) {
	t.Parallel()
	inEachPlace(t, spoofingPod)
}

func spoofingPod(t *testing.T, l *lab.Lab) {
	set(t, l, state(t, threeNodes))
	a := l.Pod(pod("a"))
	gateway, own, other := gatewayMAC(t, a.Node()), podMAC(t, a), net.HardwareAddr{2, 0, 0, 0, 0, 99}
	out := openWire(t, a.Namespace(), "eth0")
	for _, name := range []string{"b", "c"} {
		b := l.Pod(pod(name))
		victim := openWire(t, b.Namespace(), "eth0")
		for _, f := range model.Families() {
			honest := func(text string) {
				kind, packet := udpPacket(a.Address(f), b.Address(f), markerPort, text)
				out.send(ethernet(own, gateway, kind, packet))
			}
			stranger := lab.Map(netip.MustParseAddr("10.10.0.77"))
			if f == model.IPv4 {
				stranger = netip.MustParseAddr("10.10.0.77")
			}
			for _, c := range []struct {
				name string
				mac  net.HardwareAddr
				src  netip.Addr
			}{
				{"unused address", own, stranger},
				{"address of another pod", own, l.Pod(pod("d")).Address(f)},
				{"address of the node", own, a.Node().Address(f)},
				{"address outside", own, mapTo(f, "203.0.113.5")},
				{"foreign MAC", other, a.Address(f)},
				{"the gateway's MAC", gateway, a.Address(f)},
			} {
				t.Run(fmt.Sprintf("to %s/IPv%s/%s", name, f, c.name), func(t *testing.T) {
					lie := "lie " + t.Name()
					kind, packet := udpPacket(c.src, b.Address(f), markerPort, lie)
					if arrives(t, victim, func() { out.send(ethernet(c.mac, gateway, kind, packet)) },
						func(frame []byte) bool { return bytes.Contains(frame, []byte(lie)) }, honest) {
						t.Error("the spoofed packet arrived")
					}
				})
			}
		}
	}
}

func mapTo(f model.Family, text string) netip.Addr {
	a := netip.MustParseAddr(text)
	if f == model.IPv6 {
		return lab.Map(a)
	}
	return a
}

// victim is the target of a lie about neighbours.
type victim struct {
	name string
	wire *wire
	to   func(model.Family) netip.Addr
	mac  net.HardwareAddr
}

// mustNotReceive sends a frame and fails the test if the victim gets its
// content, with any outer addresses.
func (v victim) mustNotReceive(t *testing.T, out *wire, frame []byte, marker func(string)) {
	t.Helper()
	payload := frame[etherLen:]
	if arrives(t, v.wire, func() { out.send(frame) },
		func(got []byte) bool { return bytes.Contains(got, payload) }, marker) {
		t.Error("the false claim arrived")
	}
}

// TestSpoofingNeighbours claims addresses of others by ARP and by neighbour
// advertisement, towards a pod of the same node and towards the node.
func TestSpoofingNeighbours(t *testing.T) {
	t.Parallel()
	inEachPlace(t, spoofingNeighbours)
}

func spoofingNeighbours(t *testing.T, l *lab.Lab) {
	set(t, l, state(t, threeNodes))
	a, b := l.Pod(pod("a")), l.Pod(pod("b"))
	gateway, own := gatewayMAC(t, a.Node()), podMAC(t, a)
	broadcast := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	out := openWire(t, a.Namespace(), "eth0")
	victims := []victim{
		{"pod", openWire(t, b.Namespace(), "eth0"), b.Address, podMAC(t, b)},
		{"node", openWire(t, a.Node().Namespace(), "flx-gw0"), a.Node().Address, gateway},
	}
	for _, v := range victims {
		for _, c := range []struct {
			name  string
			claim func(model.Family) netip.Addr
		}{
			{"another pod", l.Pod(pod("d")).Address},
			{"the pod beside", b.Address},
			{"the gateway", func(f model.Family) netip.Addr { return mapTo(f, "10.10.0.1") }},
		} {
			for _, to := range []net.HardwareAddr{broadcast, v.mac} {
				t.Run(fmt.Sprintf("ARP to %s %s/%s", v.name, to, c.name), func(t *testing.T) {
					claimed := c.claim(model.IPv4)
					frame := ethernet(own, to, etherARP, arpReply(claimed, own, v.to(model.IPv4), v.mac))
					v.mustNotReceive(t, out, frame, func(text string) {
						kind, packet := udpPacket(a.Address(model.IPv4), v.to(model.IPv4), markerPort, text)
						out.send(ethernet(own, gateway, kind, packet))
					})
				})
				t.Run(fmt.Sprintf("NA to %s %s/%s", v.name, to, c.name), func(t *testing.T) {
					dst, dstMAC := v.to(model.IPv6), to
					if to.String() == broadcast.String() {
						dst, dstMAC = netip.MustParseAddr("ff02::1"), net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
					}
					claimed := c.claim(model.IPv6)
					for _, src := range []netip.Addr{a.Address(model.IPv6), claimed} {
						frame := ethernet(own, dstMAC, etherIPv6, neighbourAdvertisement(src, dst, claimed, own))
						v.mustNotReceive(t, out, frame, func(text string) {
							kind, packet := udpPacket(a.Address(model.IPv6), v.to(model.IPv6), markerPort, text)
							out.send(ethernet(own, gateway, kind, packet))
						})
					}
				})
			}
		}
	}
}

// TestTunnelGuard sends tunnel packets that no honest node sends: from a host
// that is no node, and from a node with the inner source of another node.
func TestTunnelGuard(t *testing.T) {
	t.Parallel()
	inEachPlace(t, func(t *testing.T, l *lab.Lab) {
		set(t, l, state(t, threeNodes))
		tunnelGuard(t, l)
	})
}

func tunnelGuard(t *testing.T, l *lab.Lab) {
	a := l.Pod(pod("a"))
	victim := openWire(t, a.Namespace(), "eth0")
	virtual := net.HardwareAddr{0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	for _, f := range model.Families() {
		inner := func(src netip.Addr, text string) []byte {
			kind, packet := udpPacket(src, a.Address(f), markerPort, text)
			return geneve(ethernet(virtual, virtual, kind, packet))
		}
		honestPod := l.Pod(pod("d"))
		honest := func(text string) {
			sendTunnel(t, l, "node:node3", a.Node(), inner(honestPod.Address(f), text))
		}
		for _, c := range []struct {
			name, from string
			src        netip.Addr
		}{
			{"no node, a pod's address", "ip:192.168.50.99", honestPod.Address(f)},
			{"no node, its own address", "ip:192.168.50.99", mapTo(f, "192.168.50.99")},
			{"a node with a pod of another node", "node:node3", l.Pod(pod("c")).Address(f)},
			{"a node with a pod of the receiving node", "node:node3", l.Pod(pod("b")).Address(f)},
			{"a node with another node's address", "node:node3", l.Node("node2").Address(f)},
			{"a node with an address outside", "node:node3", mapTo(f, "203.0.113.5")},
		} {
			t.Run("IPv"+f.String()+"/"+c.name, func(t *testing.T) {
				lie := "lie " + t.Name()
				before := metric(t, a.Node(), tunnelSourceMetric)
				if arrives(t, victim, func() { sendTunnel(t, l, c.from, a.Node(), inner(c.src, lie)) },
					func(frame []byte) bool { return bytes.Contains(frame, []byte(lie)) }, honest) {
					t.Error("the packet arrived")
				}
				if os.Getenv(datapathEnv) == ovsdb.DatapathSystem && strings.HasPrefix(c.from, "ip:") {
					return // netfilter drops it before
				}
				// Counters of flows follow within a second.
				eventually.True(t, "the packet to be counted", func() bool { return metric(t, a.Node(), tunnelSourceMetric) == before+1 })
			})
		}
	}
	eventually.True(t, "status says that the tunnel guard drops packets", func() bool {
		kind, packet := udpPacket(mapTo(model.IPv4, "203.0.113.5"), a.Address(model.IPv4), markerPort, "lie")
		sendTunnel(t, l, "node:node3", a.Node(), geneve(ethernet(virtual, virtual, kind, packet)))
		s, err := a.Node().Status(t.Context())
		return err == nil && slices.ContainsFunc(s.Problems, func(p model.Problem) bool {
			return strings.Contains(p.Reason, "packets of the tunnel that were dropped in the last minute")
		})
	})
}

const tunnelSourceMetric = `felixlike_dropped_packets_total{reason="tunnel-source"}`

// sendTunnel sends a geneve packet from a host of the lab to a node.
func sendTunnel(t *testing.T, l *lab.Lab, from string, to *lab.Node, packet []byte) {
	t.Helper()
	sendTunnelTo(t, l, from, to, 6081, packet)
}

// sendTunnelTo sends a packet to a UDP port of a tunnel.
func sendTunnelTo(t *testing.T, l *lab.Lab, from string, to *lab.Node, port uint16, packet []byte) {
	t.Helper()
	ns, addr, err := l.Host(from, model.FamilyOf(to.Outer()))
	if err != nil {
		t.Fatal(err)
	}
	err = ns.Do(func() error {
		conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)),
			net.UDPAddrFromAddrPort(netip.AddrPortFrom(to.Outer(), port)))
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write(packet)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
