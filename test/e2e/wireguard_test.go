package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/wireguard"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
)

// hostPod is a pod on the network of node2: its address is the node's own.
const hostPod = `
{kind: Pod, metadata: {namespace: x, name: h}, spec: {nodeName: node2, hostNetwork: true, containers: [{name: c, ports: [{containerPort: 8080}]}]}}
`

// encryptedLab is a lab with wires on the ports of its nodes.
type encryptedLab struct {
	*lab.Lab
	fabric *namespace.Namespace
	ports  map[string]*wire
}

// TestWireGuard: with encryption, packets between pods of different nodes, and between pods and other nodes, travel
// by WireGuard only, whatever else fails, and verdicts stay the same.
func TestWireGuard(t *testing.T) {
	t.Parallel()
	if err := wireguard.Supported(); err != nil {
		t.Skip(err)
	}
	for _, c := range []struct{ backend, then string }{{config.NFTables, config.IPTablesNFT}, {config.OpenFlow, config.NFTables}} {
		t.Run(c.backend, func(t *testing.T) { encrypted(t, c.backend, c.then) })
	}
}

// encrypted tries a backend, and a change to another one.
func encrypted(t *testing.T, first, then string) {
	t.Helper()
	l := &encryptedLab{Lab: newLabWith(t, lab.Config{Backend: first, Encryption: config.WireGuard}), ports: map[string]*wire{}}
	set(t, l.Lab, state(t, twoSubnets, hostPod))
	var err error
	if l.fabric, err = namespace.Open("flx-" + l.Name() + "-fabric"); err != nil {
		t.Fatal(err)
	}
	defer l.fabric.Close()
	for _, n := range []string{"node1", "node2", "node3"} {
		l.ports[n] = openWire(t, l.fabric, "n-"+n)
	}
	// The first handshake of two nodes can be lost, and WireGuard tries again after 5 s.
	eventually.True(t, "node1 and node2 reach each other", func() bool { return probeFor(t, l.Lab, patience, "x/c", "x/a", model.TCP, 80) })
	l.verdicts(t, "at first")
	l.routes(t)
	forgers(t, l.Lab, l.fabric)
	l.forgedNode(t)
	liveIsWanted(t, l.Name(), "node1")
	l.restart(t)
	l.tampered(t)
	l.withoutDevice(t)
	l.otherKey(t)
	talkAll := l.dialAll(t)
	for _, n := range slices.Sorted(maps.Keys(l.ports)) {
		change(t, l.Node(n), then)
	}
	talkAll("with " + then)
	l.verdicts(t, "with "+then)
	l.withoutKey(t)
	l.turnedOff(t)
}

// verdicts tries pairs of pods, and looks at what the nodes have sent meanwhile.
func (l *encryptedLab) verdicts(t *testing.T, when string) {
	t.Helper()
	l.sent(t)
	for _, c := range []struct {
		from, to string
		port     uint16
		through  bool
	}{
		{"x/c", "x/a", 80, true},
		{"x/c", "x/a", 81, false},
		{"x/d", "x/a", 80, false},
		{"x/a", "x/c", 80, true},
		{"x/a", "x/d", 80, true},
		{"x/d", "x/b", 80, true},
		{"x/d", "x/c", 80, false},
		{"x/b", "x/h", 8080, true},
		{"x/h", "x/b", 80, true},
		{"x/h", "x/a", 80, false},
	} {
		expect(t, l.Lab, c.through, c.from, c.to, model.TCP, c.port)
	}
	seen := l.sent(t)
	for _, pair := range []string{"node1>192.168.50.12", "node2>192.168.50.11", "node1>192.168.60.13", "node3>192.168.50.11"} {
		if seen[pair+" wireguard"] == 0 {
			t.Errorf("%s: no packets of WireGuard %s in %v", when, pair, seen)
		}
	}
}

// sent reads the wires, fails the test for packets of pods and of the tunnel, and counts those of WireGuard.
func (l *encryptedLab) sent(t *testing.T) map[string]int {
	t.Helper()
	seen := map[string]int{}
	for node, w := range l.ports {
		for {
			frame := w.next(time.Now().Add(50 * time.Millisecond))
			if frame == nil {
				break
			}
			p, ok := parseIP(frame)
			if !ok {
				continue
			}
			if clear := p.ofPods(); clear {
				t.Errorf("port of %s: a packet of a pod in the clear: %s > %s", node, p.from, p.to)
			}
			switch {
			case p.proto == unix.IPPROTO_UDP && p.port == 51820:
				seen[node+">"+p.to.String()+" wireguard"]++
			case p.proto == unix.IPPROTO_UDP && p.port == 6081:
				t.Errorf("port of %s: a packet of the tunnel", node)
			}
		}
	}
	return seen
}

// packetOf is the outer header of a packet; port is UDP's destination.
type packetOf struct {
	from, to netip.Addr
	proto    byte
	port     uint16
}

func parseIP(frame []byte) (p packetOf, ok bool) {
	if len(frame) < etherLen+44 {
		return p, false
	}
	header, payload := frame[etherLen:], etherLen+20
	switch binary.BigEndian.Uint16(frame[12:]) {
	case unix.ETH_P_IP:
		p.from, p.to, p.proto = netip.AddrFrom4([4]byte(header[12:])), netip.AddrFrom4([4]byte(header[16:])), header[9]
	case unix.ETH_P_IPV6:
		p.from, p.to, p.proto, payload = netip.AddrFrom16([16]byte(header[8:])), netip.AddrFrom16([16]byte(header[24:])), header[6], etherLen+40
	default:
		return p, false
	}
	p.port = binary.BigEndian.Uint16(frame[payload+2:])
	return p, true
}

// ofPods reports whether one of the addresses is a pod's.
func (p packetOf) ofPods() bool {
	for _, pods := range []netip.Prefix{netip.MustParsePrefix("10.10.0.0/16"), lab.MapPrefix(netip.MustParsePrefix("10.10.0.0/16"))} {
		if pods.Contains(p.from) || pods.Contains(p.to) {
			return true
		}
	}
	return false
}

// routes compares the agent's routes of node1 with those of docs/use/encryption.md.
func (l *encryptedLab) routes(t *testing.T) {
	t.Helper()
	want := []string{
		"10.10.1.0/24 dev flx-wg0 scope link src 192.168.50.11", "10.10.2.0/24 dev flx-wg0 scope link src 192.168.50.11",
		"fd00:10::a0a:100/120 dev flx-wg0 src fd00:10::c0a8:320b metric 1024", "fd00:10::a0a:200/120 dev flx-wg0 src fd00:10::c0a8:320b metric 1024",
		"192.168.50.12 dev flx-wg0 scope link", "192.168.60.13 dev flx-wg0 scope link",
		"fd00:10::c0a8:320c dev flx-wg0 metric 1024", "fd00:10::c0a8:3c0d dev flx-wg0 metric 1024",
	}
	got := routesToPeers(t, l.Lab, "for t in main 20800; do for f in 4 6; do ip -$f route show proto 208 table $t; done; done")
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("routes:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// forgedNode: a packet with a peer's own address, in the clear, does not come to a pod.
func (l *encryptedLab) forgedNode(t *testing.T) {
	t.Helper()
	node, b := l.Node("node1"), l.Pod(pod("b"))
	out, victim := l.ports["node1"], openWire(t, b.Namespace(), "eth0")
	third, to := net.HardwareAddr{2, 0, 0, 0, 0, 0x66}, uplinkMAC(t, node)
	for _, f := range model.Families() {
		honest := func(text string) {
			kind, packet := udpPacket(mapTo(f, "203.0.113.5"), b.Address(f), markerPort, text)
			out.send(ethernet(third, to, kind, packet))
		}
		lie := fmt.Sprintf("lie of a node IPv%s", f)
		kind, packet := udpPacket(l.Node("node2").Address(f), b.Address(f), markerPort, lie)
		if arrives(t, victim, func() { out.send(ethernet(uplinkMAC(t, l.Node("node2")), to, kind, packet)) },
			func(frame []byte) bool { return bytes.Contains(frame, []byte(lie)) }, honest) {
			t.Errorf("IPv%s: an unencrypted packet with the address of a node arrived", f)
		}
	}
	// What the test has sent is on the wire of its port.
	for l.ports["node1"].next(time.Now().Add(50*time.Millisecond)) != nil {
	}
}

// dialAll opens connections between nodes, and returns a function that uses them.
func (l *encryptedLab) dialAll(t *testing.T) func(when string) {
	t.Helper()
	var conns []net.Conn
	for _, f := range model.Families() {
		conns = append(conns, dial(t, l.Lab, "c", "a", f), dial(t, l.Lab, "a", "d", f))
	}
	return func(when string) {
		t.Helper()
		for _, c := range conns {
			talk(t, c, when)
		}
	}
}

// restart: agents that end and start again write nothing, and connections go on.
func (l *encryptedLab) restart(t *testing.T) {
	t.Helper()
	talkAll := l.dialAll(t)
	talkAll("before the restart")
	for _, n := range []string{"node1", "node2"} {
		if err := l.Node(n).KillAgent(); err != nil {
			t.Fatal(err)
		}
	}
	talkAll("without agents")
	for _, n := range []string{"node1", "node2"} {
		if err := l.Node(n).StartAgent(); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	talkAll("after the restart")
	for _, n := range []string{"node1", "node2"} {
		noWrites(t, l.Node(n), "after the restart")
	}
	l.sent(t)
}

// tampered: the agent repairs the device.
func (l *encryptedLab) tampered(t *testing.T) {
	t.Helper()
	node := l.Node("node1")
	for _, c := range []struct{ what, script string }{
		{"down", "ip link set flx-wg0 down"},
		{"gone", "ip link delete flx-wg0"},
		{"mtu", "ip link set flx-wg0 mtu 1300"},
		{"address", "ip address add 10.99.0.1/32 dev flx-wg0"},
	} {
		shell(t, node, c.script)
		eventually.True(t, "the device to be repaired: "+c.what, func() bool {
			text := shell(t, node, "ip link show flx-wg0; ip address show flx-wg0; ip route show proto 208")
			return strings.Contains(text, "UP") && strings.Contains(text, "mtu 1420") && !strings.Contains(text, "10.99") && strings.Count(text, "dev flx-wg0 scope link") == 2
		})
	}
	expect(t, l.Lab, true, "x/a", "x/c", model.TCP, 80)
	expect(t, l.Lab, true, "x/d", "x/b", model.TCP, 80)
	l.sent(t)
}

// withoutDevice: while there is no device and no agent, nothing leaves in the clear.
func (l *encryptedLab) withoutDevice(t *testing.T) {
	t.Helper()
	node := l.Node("node1")
	if err := node.KillAgent(); err != nil {
		t.Fatal(err)
	}
	shell(t, node, "ip link delete flx-wg0")
	for _, to := range []string{"x/c", "x/h"} {
		port := uint16(80)
		if to == "x/h" {
			port = 8080
		}
		expect(t, l.Lab, false, "x/b", to, model.TCP, port)
	}
	l.sent(t)
	if err := l.RestartAgent(t.Context(), "node1"); err != nil {
		t.Fatal(err)
	}
	expect(t, l.Lab, true, "x/b", "x/c", model.TCP, 80)
	expect(t, l.Lab, true, "x/b", "x/h", model.TCP, 8080)
	l.sent(t)
}

// annotated returns the lab's objects with another value of node2's or node3's key.
func annotated(t *testing.T, node, key string) lab.State {
	t.Helper()
	s := state(t, twoSubnets, hostPod)
	for _, n := range s.Nodes {
		if n.Name == node {
			n.Annotations = map[string]string{model.PublicKeyAnnotation: key}
		}
	}
	return s
}

// otherKey: a node that lost its key gets another one, says that its object has the old one, and is reached once its object has
// the new one.
func (l *encryptedLab) otherKey(t *testing.T) {
	t.Helper()
	node := l.Node("node2")
	if err := os.Remove(filepath.Join(node.StateDir(), wireguard.KeyFile)); err != nil {
		t.Fatal(err)
	}
	if err := l.RestartAgent(t.Context(), "node2"); err != nil {
		t.Fatal(err)
	}
	s, err := node.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(s.Problems, func(p model.Problem) bool {
		return p.Object.Name == "node2" && strings.Contains(p.Reason, s.Underlay.PublicKey.String())
	}) {
		t.Errorf("problems %v", s.Problems)
	}
	set(t, l.Lab, annotated(t, "node2", s.Underlay.PublicKey.String()))
	expect(t, l.Lab, true, "x/a", "x/c", model.TCP, 80)
	expect(t, l.Lab, true, "x/c", "x/d", model.TCP, 80)
	if private, err := os.ReadFile(filepath.Join(node.StateDir(), wireguard.KeyFile)); err != nil || strings.Contains(logOf(t, node), strings.TrimSpace(string(private))) {
		t.Errorf("the log has the private key, or there is none: %v", err)
	}
}

func logOf(t *testing.T, n *lab.Node) string {
	t.Helper()
	text, err := os.ReadFile(n.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// withoutKey: a node without a key is not reached, nothing is sent to it in the clear, and status names it.
func (l *encryptedLab) withoutKey(t *testing.T) {
	t.Helper()
	node2, err := l.Node("node2").Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := annotated(t, "node2", node2.Underlay.PublicKey.String())
	for _, n := range s.Nodes {
		if n.Name == "node3" {
			n.Annotations = map[string]string{model.PublicKeyAnnotation: "none"}
		}
	}
	set(t, l.Lab, s)
	l.sent(t)
	expect(t, l.Lab, false, "x/c", "x/d", model.TCP, 80)
	expect(t, l.Lab, false, "x/d", "x/b", model.TCP, 80)
	expect(t, l.Lab, true, "x/c", "x/a", model.TCP, 80)
	l.sent(t)
	status, err := l.Node("node1").Status(t.Context())
	if err != nil || !slices.ContainsFunc(status.Problems, func(p model.Problem) bool {
		return p.Object.Name == "node3" && strings.Contains(p.Reason, "no public key of WireGuard")
	}) {
		t.Errorf("problems %v, %v", status.Problems, err)
	}
}

// turnedOff: without encryption the tunnel leads to pods again, and the device is gone.
func (l *encryptedLab) turnedOff(t *testing.T) {
	t.Helper()
	for _, n := range slices.Sorted(maps.Keys(l.ports)) {
		l.Node(n).Settings().Encryption = config.NoEncryption
		if err := l.RestartAgent(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, l.Lab, true, "x/c", "x/a", model.TCP, 80)
	expect(t, l.Lab, true, "x/d", "x/b", model.TCP, 80)
	text := shell(t, l.Node("node1"), "ip link; ip route show proto 208 table all; nft list tables")
	if strings.Contains(text, "flx-wg0") || strings.Contains(text, "felixlike-senders") {
		t.Errorf("left of encryption:\n%s", text)
	}
}
