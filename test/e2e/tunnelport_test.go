package e2e

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
)

// TestTunnelPort: on a node where INPUT of both variants of iptables drops, tunnel packets of peers arrive under
// each backend, and those of a stranger do not. On the kernel's datapath the table of the tunnel port drops them,
// before the tunnel device.
func TestTunnelPort(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	set(t, l, state(t, threeNodes))
	tunnelPorts(t, l)
}

// inputTools are the tools for INPUT of the family of the node's tunnels.
func inputTools(n *lab.Node) []string {
	if model.FamilyOf(n.Outer()) == model.IPv6 {
		return []string{"ip6tables-legacy", "ip6tables-nft"}
	}
	return []string{"iptables-legacy", "iptables-nft"}
}

func tunnelPorts(t *testing.T, l *lab.Lab) {
	node := l.Node("node1")
	for _, tool := range inputTools(node) {
		shell(t, node, tool+" -A INPUT -i lo -j ACCEPT && "+tool+" -A INPUT -p ipv6-icmp -j ACCEPT && "+tool+" -P INPUT DROP")
	}
	for i, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			if i > 0 {
				change(t, node, backend)
			}
			tunnelPort(t, l, node)
		})
	}
	for _, tool := range inputTools(node) {
		// ufw and others write INPUT anew.
		shell(t, node, tool+" -F INPUT")
		eventually.True(t, "the rule to be there again", func() bool { return firstInput(t, node, tool) })
		shell(t, node, tool+" -P INPUT ACCEPT") // without neighbour discovery the node is soon unreachable
	}
}

func tunnelPort(t *testing.T, l *lab.Lab, node *lab.Node) {
	for _, tool := range inputTools(node) {
		eventually.True(t, "the rule in INPUT of "+tool, func() bool { return firstInput(t, node, tool) })
	}
	a := l.Pod(pod("a"))
	victim := openWire(t, a.Namespace(), "eth0")
	virtual := net.HardwareAddr{0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	dropped := droppedStrangers(t, node)
	for _, f := range model.Families() {
		inner := func(text string) []byte {
			kind, packet := udpPacket(l.Pod(pod("c")).Address(f), a.Address(f), markerPort, text)
			return geneve(ethernet(virtual, virtual, kind, packet))
		}
		lie := fmt.Sprintf("lie %s IPv%s", t.Name(), f)
		if arrives(t, victim, func() { sendTunnel(t, l, "ip:192.168.50.99", node, inner(lie)) },
			func(frame []byte) bool { return bytes.Contains(frame, []byte(lie)) },
			func(text string) { sendTunnel(t, l, "node:node2", node, inner(text)) }) {
			t.Errorf("IPv%s: the stranger's packet arrived", f)
		}
	}
	if os.Getenv(datapathEnv) == ovsdb.DatapathSystem && droppedStrangers(t, node) == dropped {
		t.Error("the table of the tunnel port dropped nothing")
	}
	expect(t, l, true, "x/c", "x/a", model.TCP, 80)
	expect(t, l, true, "x/a", "x/c", model.TCP, 80)
	liveIsWanted(t, l.Name(), "node1")
}

// firstInput reports whether the agent's rule is the first one of INPUT, and the only one of the agent.
func firstInput(t *testing.T, n *lab.Node, tool string) bool {
	t.Helper()
	const ours = "felixlike tunnel packets of nodes"
	rules := strings.Split(shell(t, n, tool+" -S INPUT"), "\n")
	return strings.Contains(rules[1], ours) && strings.Count(strings.Join(rules, "\n"), ours) == 1
}

// droppedStrangers returns the counter of the rule that drops tunnel packets of strangers.
func droppedStrangers(t *testing.T, n *lab.Node) string {
	t.Helper()
	return shell(t, n, "nft list chain inet felixlike-tunnel tunnel | grep stranger")
}
