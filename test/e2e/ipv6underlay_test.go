package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/health"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/traffic"
	"github.com/felixlike/felixlike/test/lab/verify"
	"github.com/felixlike/felixlike/test/truthtable"
)

// withoutIPv4 gives the nodes of threeNodes their IPv6 addresses only. Pods have both families.
func withoutIPv4(objects string) string {
	for i := 1; i <= 3; i++ {
		node := fmt.Sprintf("{kind: Node, metadata: {name: node%d}", i)
		objects = strings.Replace(objects, node, fmt.Sprintf("%s, status: {addresses: [{type: InternalIP, address: 'fd00:10::192.168.50.%d'}]}", node, 10+i), 1)
	}
	return objects
}

// TestIPv6Underlay: nodes with an IPv6 address only reach each other's pods in both families, with packets of full size.
// Policy judges them, a change of the backend keeps connections, and nobody but a node gets packets through the tunnel. A node
// with IPv4 is not reached, and status names it.
func TestIPv6Underlay(t *testing.T) {
	t.Parallel()
	for kind, test := range map[string]func(*testing.T, *lab.Lab){
		"geneve": func(t *testing.T, l *lab.Lab) {
			set(t, l, state(t, withoutIPv4(threeNodes)))
			tunnelGuard(t, l)
			open := []net.Conn{dial(t, l, "c", "a", model.IPv4), dial(t, l, "c", "a", model.IPv6)}
			tunnelPorts(t, l)
			for _, conn := range open {
				talk(t, conn, "after all changes of the backend")
			}
			otherFamily(t, l)
		},
		"vxlan": ipv6UnderlayTruth,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			l := newLabWith(t, lab.Config{Tunnel: kind})
			set(t, l, state(t, withoutIPv4(threeNodes), onlyFromC))
			expect(t, l, true, "x/c", "x/a", model.TCP, 80)
			expect(t, l, false, "x/d", "x/a", model.TCP, 80)
			for _, f := range model.Families() {
				transfer(t, l, "c", "a", f)
			}
			secondAddress(t, l)
			test(t, l)
		})
	}
}

// secondAddress gives a node another address of the prefix of the nodes, as keepalived or DHCPv6 beside SLAAC do.
// Tunnel packets still come from the node's InternalIP: the other node drops those from elsewhere.
func secondAddress(t *testing.T, l *lab.Lab) {
	t.Helper()
	n := l.Node("node1")
	shell(t, n, "ip address add fd00:10::192.168.50.2/120 dev eth0 nodad")
	eventually.True(t, "the bridge has the second address", func() bool {
		return strings.Contains(shell(t, n, "ip -6 address show dev br-phy"), "fd00:10::c0a8:3202/")
	})
	for _, f := range model.Families() {
		transfer(t, l, "c", "a", f)
	}
	prefixRouteOnUplink(t, l, n, "fd00:10::192.168.50.0/120")
	tunnelsFromElsewhere(t, n)
}

// tunnelsFromElsewhere cuts the tunnels of a node by an address, and those to one peer by a route, that the agent does
// not repair: the agent says so.
func tunnelsFromElsewhere(t *testing.T, n *lab.Node) {
	t.Helper()
	ready := func() string {
		_, answer, err := control.NewClient(n.ControlSocket()).Probe(t.Context(), health.ReadyPath)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	shell(t, n, "ip address add fd00:10::192.168.50.3/120 dev br-phy nodad")
	eventually.True(t, "the node is not ready", func() bool {
		return strings.Contains(ready(), "from fd00:10::c0a8:3203 and not from fd00:10::c0a8:320b")
	})
	shell(t, n, "ip address del fd00:10::192.168.50.3/120 dev br-phy")
	eventually.True(t, "the node is ready", func() bool { return !strings.Contains(ready(), "tunnel packets") })
	status := func() string {
		out, _, _ := felixctl(t, "status", "--socket", n.ControlSocket())
		return strings.Join(strings.Fields(out), " ")
	}
	shell(t, n, "ip -6 route add fd00:10::192.168.50.12/128 via fd00:10::a0a:9 dev flx-gw0 onlink")
	eventually.True(t, "status names the peer", func() bool {
		return strings.Contains(status(), "tunnel packets to node2, fd00:10::c0a8:320c, by flx-gw0")
	})
	if strings.Contains(ready(), "tunnel packets") {
		t.Error("one peer makes the node not ready")
	}
	shell(t, n, "ip -6 route del fd00:10::192.168.50.12/128 via fd00:10::a0a:9 dev flx-gw0 onlink")
	eventually.True(t, "status is clean", func() bool { return !strings.Contains(status(), "tunnel packets") })
}

// otherFamily gives node3 an IPv4 address beside the IPv6 one.
func otherFamily(t *testing.T, l *lab.Lab) {
	const address = "{type: InternalIP, address: 'fd00:10::192.168.50.13'}"
	set(t, l, state(t, strings.Replace(withoutIPv4(threeNodes), address, "{type: InternalIP, address: 192.168.50.13}, "+address, 1)))
	expect(t, l, true, "x/c", "x/a", model.TCP, 80)
	expect(t, l, false, "x/d", "x/a", model.TCP, 80)
	expect(t, l, false, "x/a", "x/d", model.TCP, 80)
	for node, other := range map[string]string{"node1": "node/node3", "node3": "node/node1"} {
		out, _, _ := felixctl(t, "status", "--socket", l.Node(node).ControlSocket())
		if !strings.Contains(out, other) || !strings.Contains(out, "there is no tunnel to") {
			t.Errorf("status of %s does not name %s:\n%s", node, other, out)
		}
	}
}

// ipv6UnderlayTruth judges a part of the sample under each backend, also by traces. Under the last one, openflow, the agent's
// answers to rejected packets come back through the tunnel.
func ipv6UnderlayTruth(t *testing.T, l *lab.Lab) {
	all := readSteps(t, "../truthtable/testdata/sample.jsonl")
	for i, backend := range backends() {
		for _, n := range []string{"node1", "node2"} {
			if i > 0 {
				change(t, l.Node(n), backend)
			}
		}
		for _, f := range model.Families() {
			steps := onIPv6Nodes(all[i*4:i*4+1], f)
			judge(t, l, steps, f, func(s *truthtable.Step, o verify.Outcome) { traceProbes(t, l, s, f, o) })
		}
	}
	set(t, l, state(t, withoutIPv4(threeNodes), rejecting))
	for _, f := range model.Families() {
		for _, w := range [][2]string{{"c", "a"}, {"a", "c"}} {
			_, err := traffic.Connect(l.Pod(pod(w[0])).Namespace(), netip.Addr{}, netip.AddrPortFrom(l.Pod(pod(w[1])).Address(f), 80), patience)
			if !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("%s -> %s over IPv%s: %v, want a reset", w[0], w[1], f, err)
			}
		}
	}
}

// onIPv6Nodes returns steps whose nodes have an IPv6 address only. No node and no host outside sends IPv4 to another node.
func onIPv6Nodes(steps []truthtable.Step, f model.Family) []truthtable.Step {
	steps = slices.Clone(steps)
	for i := range steps {
		s := &steps[i]
		s.Nodes = slices.Clone(s.Nodes)
		for j := range s.Nodes {
			s.Nodes[j].IP = truthtable.MapAddr(s.Nodes[j].IP, model.IPv6)
		}
		s.Probes = slices.DeleteFunc(slices.Clone(s.Probes), func(p truthtable.Probe) bool {
			between := !strings.Contains(p.From+p.To, "node:") && !strings.Contains(p.From+p.To, "ip:")
			return f == model.IPv4 && !between
		})
	}
	return steps
}
