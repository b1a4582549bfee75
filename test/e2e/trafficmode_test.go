package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/truthtable"
)

// twoSubnets has two nodes in one subnet, and the third behind the fabric, which is the router.
const twoSubnets = `
{kind: Node, metadata: {name: node1}, status: {addresses: [{type: InternalIP, address: 192.168.50.11}]}}
---
{kind: Node, metadata: {name: node2}, status: {addresses: [{type: InternalIP, address: 192.168.50.12}]}}
---
{kind: Node, metadata: {name: node3}, status: {addresses: [{type: InternalIP, address: 192.168.60.13}]}}
---
{kind: Pod, metadata: {namespace: x, name: a, labels: {pod: a}}, spec: {nodeName: node1, containers: [{name: c, ports: [{containerPort: 80}, {containerPort: 81}]}]}}
---
{kind: Pod, metadata: {namespace: x, name: b, labels: {pod: b}}, spec: {nodeName: node1, containers: [{name: c, ports: [{containerPort: 80}]}]}}
---
{kind: Pod, metadata: {namespace: x, name: c, labels: {pod: c}}, spec: {nodeName: node2, containers: [{name: c, ports: [{containerPort: 80}]}]}}
---
{kind: Pod, metadata: {namespace: x, name: d, labels: {pod: d}}, spec: {nodeName: node3, containers: [{name: c, ports: [{containerPort: 80}]}]}}
---
{kind: NetworkPolicy, metadata: {namespace: x, name: only-from-c}, spec: {podSelector: {matchLabels: {pod: a}},
  ingress: [{from: [{podSelector: {matchLabels: {pod: c}}}], ports: [{port: 80}]}]}}
---
{kind: NetworkPolicy, metadata: {namespace: x, name: d-not-to-c}, spec: {podSelector: {matchLabels: {pod: d}}, policyTypes: [Egress],
  egress: [{to: [{podSelector: {matchLabels: {pod: b}}}, {podSelector: {matchLabels: {pod: a}}}]}]}}
`

// TestTrafficModes runs one lab a backend through all modes: nodes change the mode while they live, and nothing
// of the mode before stays.
func TestTrafficModes(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{config.NFTables, config.IPTablesNFT, config.OpenFlow} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			l := newLabWith(t, lab.Config{Backend: backend, TrafficMode: config.NoEncap})
			set(t, l, state(t, twoSubnets))
			for _, mode := range []string{config.NoEncap, config.Hybrid, config.Encap} {
				t.Run(mode, func(t *testing.T) {
					if mode != config.NoEncap {
						for i, name := range []string{"node1", "node2", "node3"} {
							l.Node(name).Settings().TrafficMode = mode
							if err := l.RestartAgent(t.Context(), name); err != nil {
								t.Fatal(err)
							}
							if i == 0 && mode == config.Encap {
								// The two ends disagree: neither believes the other's packets.
								expect(t, l, false, "x/c", "x/b", model.TCP, 80)
								expect(t, l, false, "x/b", "x/c", model.TCP, 80)
							}
						}
					}
					trafficMode(t, l, mode)
				})
			}
		})
	}
}

// inMode starts the agents of all nodes again in a traffic mode.
func inMode(t *testing.T, l *lab.Lab, mode string) {
	t.Helper()
	for _, name := range []string{"node1", "node2", "node3"} {
		l.Node(name).Settings().TrafficMode = mode
		if err := l.RestartAgent(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTrafficModesTruthTable judges the modes without a tunnel to all nodes by some steps of the truth tables, on each backend and for both
// families. One of the pods is on a third node, behind the router.
func TestTrafficModesTruthTable(t *testing.T) {
	t.Parallel()
	var steps []truthtable.Step
	for _, table := range []string{"sample", "tiers", "antrea"} {
		for _, s := range readSteps(t, "../truthtable/testdata/"+table+".jsonl") {
			// Of the sample: deny all, a block with an exception, named ports with SCTP, egress against ingress, egress on a named port.
			if table != "sample" || slices.Contains([]string{"a02", "a03", "a05", "a11", "b02"}, s.Case) {
				steps = append(steps, thirdNode(s))
			}
		}
	}
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			l := newLabWith(t, lab.Config{Backend: backend, TrafficMode: config.NoEncap})
			for _, mode := range []string{config.NoEncap, config.Hybrid} {
				if mode != config.NoEncap {
					inMode(t, l, mode)
				}
				for _, family := range model.Families() {
					t.Run(mode+"/IPv"+family.String(), func(t *testing.T) {
						judge(t, l, steps, family)
					})
				}
			}
		})
	}
}

// thirdNode moves the pods of node1 with the second half of its prefix to a third node, in another subnet.
func thirdNode(s truthtable.Step) truthtable.Step {
	near, far := netip.MustParsePrefix("10.10.0.0/25"), netip.MustParsePrefix("10.10.0.128/25")
	s.Nodes = append(slices.Clone(s.Nodes), truthtable.Node{Name: "node3", IP: netip.MustParseAddr("192.168.60.13"), PodCIDR: far})
	for i := range s.Nodes {
		if s.Nodes[i].Name == "node1" {
			s.Nodes[i].PodCIDR = near
		}
	}
	s.Pods = slices.Clone(s.Pods)
	for i := range s.Pods {
		if far.Contains(s.Pods[i].IP) {
			s.Pods[i].Node = "node3"
		}
	}
	return s
}

// TestTrafficModesHandover changes the backends of nodes without a tunnel to all others while connections of all ages are open. Then
// the mode of all nodes changes: connections between nodes that route in both modes go on.
func TestTrafficModesHandover(t *testing.T) {
	l := newLabWith(t, lab.Config{TrafficMode: config.NoEncap})
	set(t, l, state(t, twoSubnets, pushed))
	near, all := [][2]string{{"c", "a"}, {"a", "c"}, {"a", "b"}}, [][2]string{{"c", "a"}, {"a", "c"}, {"a", "b"}, {"a", "d"}, {"d", "b"}}
	denied := [][2]string{{"b", "a"}, {"d", "a"}, {"d", "c"}}
	for _, mode := range []string{config.NoEncap, config.Hybrid} {
		if mode != config.NoEncap {
			tr := startTraffic(t, l, near, denied)
			tr.startQuiet(t, l, near)
			inMode(t, l, mode)
			tr.stop(t)
		}
		tr := startTraffic(t, l, all, denied)
		tr.startQuiet(t, l, all)
		for _, to := range []string{config.OpenFlow, config.IPTablesNFT, config.OpenFlow, config.NFTables} {
			for _, name := range []string{"node1", "node2", "node3"} {
				change(t, l.Node(name), to)
			}
		}
		tr.stop(t)
	}
	for _, name := range []string{"node1", "node2", "node3"} {
		change(t, l.Node(name), config.OpenFlow)
		nothingLeft(t, l.Node(name), config.OpenFlow)
		l.Node(name).Settings().Backend = config.OpenFlow
	}
	tr := startTraffic(t, l, near, denied)
	tr.startQuiet(t, l, near)
	inMode(t, l, config.NoEncap)
	tr.stop(t)
}

func trafficMode(t *testing.T, l *lab.Lab, mode string) {
	fabric, err := namespace.Open("flx-" + l.Name() + "-fabric")
	if err != nil {
		t.Fatal(err)
	}
	defer fabric.Close()
	ports := map[string]*wire{}
	for _, n := range []string{"node1", "node2", "node3"} {
		ports[n] = openWire(t, fabric, "n-"+n)
	}
	// The policies are one for ingress and one for egress at another node.
	for _, c := range []struct {
		from, to string
		port     uint16
		through  bool
	}{
		{"x/c", "x/a", 80, true},
		{"x/c", "x/a", 81, false},
		{"x/b", "x/a", 80, false},
		{"x/d", "x/a", 80, false},
		{"x/a", "x/c", 80, true},
		{"x/a", "x/d", 80, true},
		{"x/c", "x/d", 80, true},
		{"x/d", "x/b", 80, true},
		{"x/d", "x/c", 80, false},
	} {
		expect(t, l, c.through, c.from, c.to, model.TCP, c.port)
	}
	tunnelled := map[string]bool{}
	for node, w := range ports {
		w.tunnelledTo(tunnelled, node)
	}
	far := []string{"node1>192.168.60.13", "node2>192.168.60.13", "node3>192.168.50.11", "node3>192.168.50.12"}
	near := []string{"node1>192.168.50.12", "node2>192.168.50.11"}
	want := map[string][]string{config.NoEncap: nil, config.Hybrid: far, config.Encap: append(far, near...)}[mode]
	for _, pair := range append(far, near...) {
		if tunnelled[pair] != slices.Contains(want, pair) {
			t.Errorf("packets of the tunnel %s: %v", pair, tunnelled[pair])
		}
	}
	routesOf(t, l, mode)
	forgers(t, l, fabric)
	if text := shell(t, l.Node("node1"), "nft list tables"); strings.Contains(text, "felixlike-senders") == (mode == config.Encap) {
		t.Errorf("tables in mode %s:\n%s", mode, text)
	}
	liveIsWanted(t, l.Name(), "node1")
	for _, side := range []string{"live", "wanted"} {
		if out, _, _ := felixctl(t, "dump", side, "--lab", l.Name(), "--node", "node1"); strings.Contains(out, "table inet felixlike-senders") == (mode == config.Encap) {
			t.Errorf("dump %s in mode %s:\n%s", side, mode, out)
		}
	}
	if mode != config.Encap {
		forgedFragments(t, l, fabric)
		withoutSenders(t, l, fabric)
	}
	if s, err := l.Node("node1").Status(t.Context()); err != nil || s.Underlay.TrafficMode.String() != mode {
		t.Errorf("status has traffic mode %s, %v", s.Underlay.TrafficMode, err)
	}
}

// tunnelledTo notes the destinations of the tunnel packets that a node has sent so far.
func (w *wire) tunnelledTo(all map[string]bool, node string) {
	for frame := w.next(time.Now().Add(100 * time.Millisecond)); frame != nil; frame = w.next(time.Now().Add(100 * time.Millisecond)) {
		const ipv4, udp, geneve = 0x0800, 17, 6081
		if len(frame) < etherLen+28 || binary.BigEndian.Uint16(frame[12:]) != ipv4 || frame[etherLen+9] != udp {
			continue
		}
		if binary.BigEndian.Uint16(frame[etherLen+22:]) == geneve {
			to, _ := netip.AddrFromSlice(frame[etherLen+16 : etherLen+20])
			all[node+">"+to.String()] = true
		}
	}
}

// routesOf compares the agent's routes of node1 with those of docs/explain/network.md.
func routesOf(t *testing.T, l *lab.Lab, mode string) {
	t.Helper()
	near := []string{"10.10.1.0/24 via 192.168.50.12 dev br-phy src 192.168.50.11", "fd00:10::a0a:100/120 via fd00:10::c0a8:320c dev br-phy src fd00:10::c0a8:320b metric 1024"}
	far := []string{"10.10.2.0/24 via 10.10.2.1 dev flx-gw0 src 192.168.50.11 onlink", "fd00:10::a0a:200/120 via fd00:10::a0a:201 dev flx-gw0 src fd00:10::c0a8:320b metric 1024 onlink"}
	tunnelled := []string{"10.10.1.0/24 via 10.10.1.1 dev flx-gw0 src 192.168.50.11 onlink", "fd00:10::a0a:100/120 via fd00:10::a0a:101 dev flx-gw0 src fd00:10::c0a8:320b metric 1024 onlink"}
	want := map[string][]string{config.NoEncap: near, config.Hybrid: append(near, far...), config.Encap: append(tunnelled, far...)}[mode]
	got := routesToPeers(t, l, "ip route show proto 208; ip -6 route show proto 208")
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("routes in mode %s:\n%s\nwant\n%s", mode, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// routesToPeers returns the routes that a script shows on node1, sorted, without those of the node's own pod prefix.
func routesToPeers(t *testing.T, l *lab.Lab, script string) []string {
	t.Helper()
	var all []string
	for line := range strings.Lines(shell(t, l.Node("node1"), script)) {
		line = strings.Join(strings.Fields(strings.ReplaceAll(line, " pref medium", "")), " ")
		if ownPod := strings.Contains(line, "dev flx-gw0") && !strings.Contains(line, "via"); !ownPod && !strings.HasPrefix(line, "unreachable") {
			all = append(all, line)
		}
	}
	slices.Sort(all)
	return all
}

// forgers has hosts of the underlay send to pod b as pods: a third host in the subnet, the router for the pods of a node
// in the subnet, and each of them with the addresses of the node's own pods.
func forgers(t *testing.T, l *lab.Lab, fabric *namespace.Namespace) {
	t.Helper()
	third, router := net.HardwareAddr{2, 0, 0, 0, 0, 0x66}, linkMAC(t, fabric, "br0")
	// A frame to the port n-node1 of the bridge leaves by it, as if the bridge had forwarded it.
	out := openWire(t, fabric, "n-node1")
	node, b := l.Node("node1"), l.Pod(pod("b"))
	victim := openWire(t, b.Namespace(), "eth0")
	to := uplinkMAC(t, node)
	for _, f := range model.Families() {
		honest := func(text string) {
			kind, packet := udpPacket(mapTo(f, "203.0.113.5"), b.Address(f), markerPort, text)
			out.send(ethernet(third, to, kind, packet))
		}
		for _, c := range []struct {
			name   string
			mac    net.HardwareAddr
			source netip.Addr
		}{
			{"third host as pod of the subnet", third, l.Pod(pod("c")).Address(f)},
			{"third host as pod behind the router", third, l.Pod(pod("d")).Address(f)},
			{"third host as pod of the node", third, l.Pod(pod("a")).Address(f)},
			{"third host as gateway of the node", third, mapTo(f, "10.10.0.1")},
			{"router as pod of the subnet", router, l.Pod(pod("c")).Address(f)},
			{"router as pod of the node", router, l.Pod(pod("a")).Address(f)},
			{"peer as pod behind the router", uplinkMAC(t, l.Node("node2")), l.Pod(pod("d")).Address(f)},
		} {
			lie := fmt.Sprintf("lie of %s IPv%s", c.name, f)
			kind, packet := udpPacket(c.source, b.Address(f), markerPort, lie)
			if arrives(t, victim, func() { out.send(ethernet(c.mac, to, kind, packet)) },
				func(frame []byte) bool { return bytes.Contains(frame, []byte(lie)) }, honest) {
				t.Errorf("IPv%s: the packet of a %s arrived", f, c.name)
			}
		}
	}
}

// uplinkMAC returns the MAC address by which the other nodes know a node.
func uplinkMAC(t *testing.T, n *lab.Node) net.HardwareAddr {
	t.Helper()
	if os.Getenv(datapathEnv) == ovsdb.DatapathSystem {
		return linkMAC(t, n.Namespace(), "eth0")
	}
	return linkMAC(t, n.Namespace(), "br-phy")
}

// withoutSenders ends the agent of node1 and deletes its table of senders. Then a third host sends as pods to node1's MAC address: to a
// pod of node2, which believes what node1 relays, and with the ports of a connection that policy allowed.
func withoutSenders(t *testing.T, l *lab.Lab, fabric *namespace.Namespace) {
	t.Helper()
	node := l.Node("node1")
	if err := node.KillAgent(); err != nil {
		t.Fatal(err)
	}
	if text := shell(t, node, "nft delete table inet felixlike-senders && nft list tables"); text == "" || strings.Contains(text, "senders") {
		t.Fatalf("the table of senders is not deleted: %q", text)
	}
	const opened = 40001
	third := net.HardwareAddr{2, 0, 0, 0, 0, 0x66}
	out, to := openWire(t, fabric, "n-node1"), linkMAC(t, node.Namespace(), "br-phy")
	a, b, c := l.Pod(pod("a")), l.Pod(pod("b")), l.Pod(pod("c"))
	for _, f := range model.Families() {
		// New sockets, without markers of the family before.
		ofB, ofC := openWire(t, b.Namespace(), "eth0"), openWire(t, c.Namespace(), "eth0")
		open := fmt.Sprintf("IPv%s opens", f)
		kind, packet := datagram(b.Address(f), c.Address(f), opened, markerPort, open)
		if !comes(ofC, func() { ofB.send(ethernet(podMAC(t, b), gatewayMAC(t, node), kind, packet)) },
			func(frame []byte) bool { return bytes.Contains(frame, []byte(open)) }) {
			t.Fatalf("IPv%s: no connection from b to c", f)
		}
		for _, lie := range []struct {
			name     string
			from, to *lab.Pod
			source   uint16
			dest     uint16
			victim   *wire
		}{
			{"relayed as own pod", a, c, 40000, markerPort, ofC},
			{"in an allowed connection", c, b, markerPort, opened, ofB},
			{"as pod of the subnet", c, b, 40000, markerPort, ofB},
		} {
			text := fmt.Sprintf("lie %s IPv%s", lie.name, f)
			kind, packet := datagram(lie.from.Address(f), lie.to.Address(f), lie.source, lie.dest, text)
			honest := func(text string) {
				kind, packet := udpPacket(mapTo(f, "203.0.113.5"), lie.to.Address(f), markerPort, text)
				out.send(ethernet(third, to, kind, packet))
			}
			if arrives(t, lie.victim, func() { out.send(ethernet(third, to, kind, packet)) },
				func(frame []byte) bool { return bytes.Contains(frame, []byte(text)) }, honest) {
				t.Errorf("IPv%s: without the table of senders, a forged packet arrived: %s", f, lie.name)
			}
		}
	}
	if err := l.RestartAgent(t.Context(), "node1"); err != nil {
		t.Fatal(err)
	}
}

// datagram returns an IP packet of either family with a UDP datagram.
func datagram(src, dst netip.Addr, from, to uint16, payload string) (kind uint16, packet []byte) {
	udp := binary.BigEndian.AppendUint16(nil, from)
	udp = binary.BigEndian.AppendUint16(udp, to)
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(payload)))
	return ip(src, dst, unix.IPPROTO_UDP, 64, append(append(udp, 0, 0), payload...), 6)
}

// fragments splits an IPv4 packet behind n bytes of its payload.
func fragments(packet []byte, id uint16, n int) (first, last []byte) {
	const moreFragments = 0x2000
	part := func(payload []byte, offset uint16) []byte {
		h := slices.Clone(packet[:20])
		binary.BigEndian.PutUint16(h[2:], uint16(20+len(payload)))
		binary.BigEndian.PutUint16(h[4:], id)
		binary.BigEndian.PutUint16(h[6:], offset)
		h[10], h[11] = 0, 0
		binary.BigEndian.PutUint16(h[10:], internetChecksum(h))
		return append(h, payload...)
	}
	return part(packet[20:20+n], moreFragments), part(packet[20+n:], uint16(n/8))
}

// forgedFragments: a third host cannot complete a packet of a peer's pod. The kernel puts fragments together whatever
// their MAC addresses are.
func forgedFragments(t *testing.T, l *lab.Lab, fabric *namespace.Namespace) {
	t.Helper()
	node, b, c := l.Node("node1"), l.Pod(pod("b")), l.Pod(pod("c"))
	peer, third := linkMAC(t, l.Node("node2").Namespace(), "br-phy"), net.HardwareAddr{2, 0, 0, 0, 0, 0x66}
	out, to := openWire(t, fabric, "n-node1"), linkMAC(t, node.Namespace(), "br-phy")
	victim := openWire(t, b.Namespace(), "eth0")
	honest := func(text string) {
		kind, packet := udpPacket(netip.MustParseAddr("203.0.113.5"), b.Address(model.IPv4), markerPort, text)
		out.send(ethernet(third, to, kind, packet))
	}
	for id, last := range []net.HardwareAddr{third, peer} {
		// Open vSwitch's userspace datapath takes no first fragment of less than 1,200 bytes.
		const first = 1200
		text := fmt.Sprintf("fragment %d: %032d", id, id)
		kind, packet := udpPacket(c.Address(model.IPv4), b.Address(model.IPv4), markerPort, strings.Repeat("-", first-8)+text)
		head, tail := fragments(packet, uint16(id+1), first)
		came := arrives(t, victim, func() {
			out.send(ethernet(last, to, kind, tail))
			out.send(ethernet(peer, to, kind, head))
		}, func(frame []byte) bool { return bytes.Contains(frame, []byte(text)) }, honest)
		if came != (id == 1) {
			t.Errorf("the first fragment from the peer, the last one from %s: arrived %v", last, came)
		}
	}
}
