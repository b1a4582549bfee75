package e2e

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
)

// TestTunnelEnds: a pod sends encapsulated packets for other pods to its own node and to
// a peer, at all their addresses, under each backend and through each type of tunnel.
// No packet arrives, and the metric counts all of them.
func TestTunnelEnds(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"geneve", "vxlan", "gre"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			l := newLabWith(t, lab.Config{Tunnel: kind})
			set(t, l, state(t, threeNodes))
			for _, backend := range backends() {
				for _, n := range []string{"node1", "node2"} {
					if n != "node1" || backend != backends()[0] {
						change(t, l.Node(n), backend)
					}
				}
				t.Run(backend, func(t *testing.T) { tunnelEnds(t, l, kind) })
			}
		})
	}
}

func tunnelEnds(t *testing.T, l *lab.Lab, kind string) {
	a := l.Pod(pod("a"))
	node := a.Node()
	own, gateway := podMAC(t, a), gatewayMAC(t, node)
	out := openWire(t, a.Namespace(), "eth0")
	for _, f := range model.Families() {
		for name, to := range map[string][]netip.Addr{
			"b": {node.Address(f), mapTo(f, "10.10.0.1")},
			"c": {l.Node("node2").Address(f), mapTo(f, "10.10.1.1")},
		} {
			b := l.Pod(pod(name))
			victim := openWire(t, b.Namespace(), "eth0")
			honest := func(text string) {
				etherType, packet := udpPacket(a.Address(f), b.Address(f), markerPort, text)
				out.send(ethernet(own, gateway, etherType, packet))
			}
			for _, end := range to {
				t.Run(fmt.Sprintf("for %s to %s", name, end), func(t *testing.T) {
					lie := "lie " + t.Name()
					before := metric(t, node, tunnelEndMetric)
					if arrives(t, victim, func() {
						// The inner source is a pod of a third node.
						etherType, packet := udpPacket(l.Pod(pod("d")).Address(f), b.Address(f), markerPort, lie)
						etherType, packet = encapsulated(kind, a.Address(f), end, ethernet(gateway, podMAC(t, b), etherType, packet))
						out.send(ethernet(own, gateway, etherType, packet))
					}, func(frame []byte) bool { return bytes.Contains(frame, []byte(lie)) }, honest) {
						t.Error("the encapsulated packet arrived")
					}
					// Counters of flows follow within a second.
					eventually.True(t, "the packet to be counted", func() bool { return metric(t, node, tunnelEndMetric) == before+1 })
				})
			}
		}
	}
}

const tunnelEndMetric = `felixlike_dropped_packets_total{reason="tunnel-end"}`

// encapsulated wraps a frame for a type of tunnel.
func encapsulated(kind string, src, dst netip.Addr, frame []byte) (etherType uint16, packet []byte) {
	switch kind {
	case "vxlan":
		return udpPacket(src, dst, 4789, string(append([]byte{8, 0, 0, 0, 0, 0, 0, 0}, frame...)))
	case "gre":
		// With a key, 0, as the tunnel's own; there is no checksum to fill in.
		gre := append([]byte{0x20, 0, 0x65, 0x58, 0, 0, 0, 0}, frame...)
		etherType, packet = ip(src, dst, unix.IPPROTO_GRE, 64, gre, 4)
		header := len(packet) - len(gre)
		copy(packet[header+4:], []byte{0, 0})
		return etherType, packet
	}
	return udpPacket(src, dst, 6081, string(geneve(frame)))
}

// metric returns the value of a metric of a node's agent.
func metric(t *testing.T, n *lab.Node, name string) float64 {
	t.Helper()
	value, err := n.Metric(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return value
}
