package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
)

// egresses select pod a by label in both families. An address of IPv4 says nothing about IPv6, and the other way round.
const egresses = `
{kind: Egress, apiVersion: felixlike.io/v1alpha1, metadata: {name: four}, spec: {node: node1, egressIP: 192.168.50.100, appliedTo: {podSelector: {matchLabels: {pod: a}}}}}
---
{kind: Egress, apiVersion: felixlike.io/v1alpha1, metadata: {name: six}, spec: {node: node1, egressIP: 'fd00:10::c0a8:3264', appliedTo: {podSelector: {matchExpressions: [{key: pod, operator: In, values: [a]}]}}}}
`

// outsideHost is a host outside the cluster that tells clients their address.
type outsideHost struct {
	addr netip.AddrPort
}

// newOutsideHost starts a server of TCP at the address. It writes the client's address, and then echoes.
func newOutsideHost(t *testing.T, l *lab.Lab, address string, f model.Family) *outsideHost {
	t.Helper()
	ns, addr, err := l.Host("ip:"+address, f)
	if err != nil {
		t.Fatal(err)
	}
	h := &outsideHost{netip.AddrPortFrom(addr, 7000)}
	serveOn(t, ns, h.addr.String(), func(conn net.Conn) {
		from := netip.MustParseAddrPort(conn.RemoteAddr().String())
		fmt.Fprintln(conn, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()))
		_, _ = io.Copy(conn, conn)
	})
	return h
}

// connect opens a connection from a namespace, and returns it with the client's address as the host sees it.
func (h *outsideHost) connect(t *testing.T, ns *namespace.Namespace, timeout time.Duration) (conn net.Conn, seen string, err error) {
	t.Helper()
	conn, from, err := h.connectBy(t, ns, net.Dialer{}, timeout)
	if err != nil {
		return nil, "", err
	}
	return conn, from.Addr().String(), nil
}

// connectBy is connect with a dialer, and returns the client's port too.
func (h *outsideHost) connectBy(t *testing.T, ns *namespace.Namespace, d net.Dialer, timeout time.Duration) (conn net.Conn, seen netip.AddrPort, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	err = ns.Do(func() (err error) {
		conn, err = d.DialContext(ctx, "tcp", h.addr.String())
		return err
	})
	if err != nil {
		return nil, seen, err
	}
	opened := conn // a failure below sets the result to nil
	t.Cleanup(func() { opened.Close() })
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, seen, err
	}
	var line []byte
	for one := make([]byte, 1); ; line = append(line, one[0]) {
		if _, err := conn.Read(one); err != nil {
			return nil, seen, err
		}
		if one[0] == '\n' {
			seen, err = netip.ParseAddrPort(string(line))
			return conn, seen, err
		}
	}
}

// expectSource waits until the host sees the pod with the address, or until it does not see it at all for "nobody". No other address
// is ever seen, except for those before the change.
func expectSource(t *testing.T, l *lab.Lab, h *outsideHost, name, want string) {
	t.Helper()
	timeout := patience
	if want == nobody {
		timeout = 2 * time.Second
	}
	_, seen, err := h.connect(t, l.Pod(pod(name)).Namespace(), timeout)
	if err != nil {
		seen = nobody
	}
	if seen != want {
		t.Errorf("%s comes to %s as %s (%v), want %s", name, h.addr, seen, err, want)
	}
}

const nobody = "nobody"

// TestEgress: an outside host sees the address of its Egress for a pod of the node that holds the address, under each backend,
// and over changes of the backend. A pod whose Egress is at another node does not come out with another address.
func TestEgress(t *testing.T) {
	t.Parallel()
	inLabsOf(t, []string{config.NFTables, config.IPTablesNFT, config.OpenFlow}, egress)
}

func egress(t *testing.T, l *lab.Lab, backend string) {
	base := state(t, threeNodes, `{kind: NetworkPolicy, metadata: {namespace: x, name: b-stays}, spec: {podSelector: {matchLabels: {pod: b}}, policyTypes: [Egress]}}`)
	with := base.Merge(state(t, egresses))
	set(t, l, base)
	hosts := map[model.Family]*outsideHost{}
	own := map[model.Family]string{model.IPv4: "192.168.50.100", model.IPv6: "fd00:10::c0a8:3264"}
	before := map[model.Family]net.Conn{}
	for _, f := range model.Families() {
		hosts[f] = newOutsideHost(t, l, "203.0.113.9", f)
		expectSource(t, l, hosts[f], "a", l.Node("node1").Address(f).String())
		conn, _, err := hosts[f].connect(t, l.Pod(pod("a")).Namespace(), patience)
		if err != nil {
			t.Fatal(err)
		}
		before[f] = conn
	}
	ofNode := func(f model.Family) string { return l.Node("node1").Address(f).String() }
	ofEgress := func(f model.Family) string { return own[f] }
	silent := startOneWay(t, l, l.Pod(pod("a")))
	silent.expect(t, "without an Egress", ofNode)
	withoutMasquerade(t, l, silent)
	silent.expect(t, "after a time without masquerade", ofNode)
	set(t, l, with)
	silent.expect(t, "with an Egress at the pod's node", ofEgress)
	open := map[model.Family]net.Conn{}
	for _, f := range model.Families() {
		talk(t, before[f], "from before the Egress")
		expectSource(t, l, hosts[f], "a", own[f])
		expectSource(t, l, hosts[f], "c", l.Node("node2").Address(f).String())
		expectSource(t, l, hosts[f], "b", nobody) // policy
		conn, _, err := hosts[f].connect(t, l.Pod(pod("a")).Namespace(), patience)
		if err != nil {
			t.Fatal(err)
		}
		open[f] = conn
	}
	// The cluster sees the pod's own address.
	expect(t, l, true, "x/a", "x/c", model.TCP, 80)
	expect(t, l, true, "x/a", "node:node2", model.TCP, 80)
	expect(t, l, true, "x/a", "node:node1", model.TCP, 80)
	liveIsWanted(t, l.Name(), "node1")
	if out, errs, _ := felixctl(t, "trace", "--socket", l.Node("node1").ControlSocket(), "--from", "x/a", "--to", "203.0.113.9", "--port", "7000/tcp"); !strings.Contains(out, own[model.IPv4]) {
		t.Errorf("the trace does not name the address:\n%s%s", out, errs)
	}
	for _, other := range []string{config.OpenFlow, config.NFTables, config.IPTablesNFT, backend} {
		change(t, l.Node("node1"), other)
		for _, f := range model.Families() {
			talk(t, open[f], "under "+other)
			expectSource(t, l, hosts[f], "a", own[f])
		}
		silent.expect(t, "under "+other, ofEgress)
	}
	if err := l.RestartAgent(t.Context(), "node1"); err != nil {
		t.Fatal(err)
	}
	noWrites(t, l.Node("node1"), "after a restart")
	for _, f := range model.Families() {
		talk(t, open[f], "after a restart")
	}
	// Another node has the addresses now.
	moved := base.Merge(state(t, strings.ReplaceAll(egresses, "node1", "node2")))
	set(t, l, moved)
	// A node takes an address when the one before has given it up, some time after both have programmed the rest.
	addresses := func(node string) string {
		return shell(t, l.Node(node), "ip -o address show | grep -F -e 192.168.50.100 -e fd00:10::c0a8:3264")
	}
	eventually.True(t, "the addresses are at node2 only", func() bool {
		two := addresses("node2")
		return addresses("node1") == "" && strings.Contains(two, own[model.IPv4]) && strings.Contains(two, own[model.IPv6])
	})
	egressAway(t, l, backend, hosts, own)
	silent.expect(t, "with an Egress at another node", ofEgress)
	set(t, l, with)
	silent.expect(t, "with an Egress at the pod's node again", ofEgress)
	set(t, l, moved)
	silent.expect(t, "with an Egress at another node again", ofEgress)
	// An agent that was away removes what is stale.
	if err := l.Node("node2").KillAgent(); err != nil {
		t.Fatal(err)
	}
	if err := l.Node("node2").StartAgent(); err != nil {
		t.Fatal(err)
	}
	set(t, l, base)
	eventually.True(t, "nothing is left", func() bool {
		return addresses("node2") == "" && !strings.Contains(shell(t, l.Node("node2"), "nft list tables"), "felixlike-egress")
	})
	silent.expect(t, "after the Egress", ofNode)
	for _, f := range model.Families() {
		expectSource(t, l, hosts[f], "a", l.Node("node1").Address(f).String())
	}
}

// egressAway: pod a of node1 leaves by node2, which has its addresses, under each backend at either end, over changes of the
// backends and a restart of both agents. Nothing else comes through the tunnel to the pod.
func egressAway(t *testing.T, l *lab.Lab, backend string, hosts map[model.Family]*outsideHost, own map[model.Family]string) {
	a, open := l.Pod(pod("a")), map[model.Family]net.Conn{}
	for _, f := range model.Families() {
		expectSource(t, l, hosts[f], "a", own[f])
		expectSource(t, l, hosts[f], "b", nobody) // policy
		expectSource(t, l, hosts[f], "c", l.Node("node2").Address(f).String())
		expectSource(t, l, hosts[f], "d", l.Node("node3").Address(f).String())
		conn, _, err := hosts[f].connect(t, a.Namespace(), patience)
		if err != nil {
			t.Fatal(err)
		}
		open[f] = conn
	}
	expect(t, l, true, "x/a", "x/c", model.TCP, 80)
	expect(t, l, true, "x/c", "x/a", model.TCP, 80)
	expect(t, l, true, "x/a", "node:node2", model.TCP, 80)
	expect(t, l, true, "x/a", "node:node1", model.TCP, 80)
	for _, node := range []string{"node1", "node2"} {
		liveIsWanted(t, l.Name(), node)
	}
	if out, errs, _ := felixctl(t, "trace", "--socket", l.Node("node1").ControlSocket(), "--from", "x/a", "--to", "203.0.113.9", "--port", "7000/tcp"); !strings.Contains(out, "to node2 (192.168.50.12)") {
		t.Errorf("the trace does not follow the packet into the tunnel:\n%s%s", out, errs)
	}
	for _, f := range model.Families() {
		// Segments of full size.
		sent, got := bytes.Repeat([]byte("x"), 5000), make([]byte, 5000)
		if _, err := open[f].Write(sent); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(open[f], got); err != nil {
			t.Errorf("%d bytes through the tunnel: %v", len(sent), err)
		}
	}
	forgedAnswers(t, l, hosts, open)
	withoutEgress(t, l, hosts)
	for i, other := range []string{config.OpenFlow, config.NFTables, config.IPTablesNFT, backend} {
		change(t, l.Node([]string{"node1", "node2"}[i%2]), other)
		for _, f := range model.Families() {
			talk(t, open[f], "through the tunnel, under "+other)
			expectSource(t, l, hosts[f], "a", own[f])
		}
	}
	change(t, l.Node("node1"), backend)
	for _, node := range []string{"node1", "node2"} {
		if err := l.RestartAgent(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		noWrites(t, l.Node(node), "after a restart")
	}
	for _, f := range model.Families() {
		talk(t, open[f], "through the tunnel, after restarts")
	}
}

// TestEgressTrafficModes: in each mode without a tunnel to all nodes, pods of nodes with a tunnel to the node with the address leave with it, and so do
// its own pods. Pods of other nodes do not leave at all.
func TestEgressTrafficModes(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{config.NFTables, config.IPTablesNFT, config.OpenFlow} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			l := newLabWith(t, lab.Config{Backend: backend, TrafficMode: config.Hybrid})
			// Pod c is at a node of the same subnet, pod d at one behind the router.
			set(t, l, state(t, twoSubnets, strings.ReplaceAll(shared, "values: [a, c]", "values: [a, c, d]"),
				`{kind: NetworkPolicy, metadata: {namespace: x, name: d-leaves}, spec: {podSelector: {matchLabels: {pod: d}}, policyTypes: [Egress], egress: [{}]}}`))
			hosts := map[model.Family]*outsideHost{}
			for f, address := range elected {
				hosts[f] = newOutsideHost(t, l, "203.0.113.9", f)
				expectSource(t, l, hosts[f], "a", address.String())
				expectSource(t, l, hosts[f], "d", address.String())
				expectSource(t, l, hosts[f], "c", nobody)
			}
			inMode(t, l, config.NoEncap)
			for f, address := range elected {
				expectSource(t, l, hosts[f], "a", address.String())
				expectSource(t, l, hosts[f], "c", nobody)
				expectSource(t, l, hosts[f], "d", nobody)
			}
			for _, node := range []string{"node1", "node3"} {
				liveIsWanted(t, l.Name(), node)
			}
		})
	}
}

// forgedAnswers sends packets with an outside source through the tunnel to pod a: as the node with the address, of no connection;
// and as a node without it, of an open connection.
func forgedAnswers(t *testing.T, l *lab.Lab, hosts map[model.Family]*outsideHost, open map[model.Family]net.Conn) {
	a, d := l.Pod(pod("a")), l.Pod(pod("d"))
	victim := openWire(t, a.Namespace(), "eth0")
	virtual := net.HardwareAddr{0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	for _, f := range model.Families() {
		outside, local := hosts[f].addr, netip.MustParseAddrPort(open[f].LocalAddr().String())
		honest := func(text string) {
			kind, packet := udpPacket(d.Address(f), a.Address(f), markerPort, text)
			sendTunnel(t, l, "node:node3", a.Node(), geneve(ethernet(virtual, virtual, kind, packet)))
		}
		forged := map[string]func(text string) (uint16, []byte){
			"node:node2": func(text string) (uint16, []byte) {
				return udpDatagram(outside, netip.AddrPortFrom(a.Address(f), 80), text)
			},
			"node:node3":       func(text string) (uint16, []byte) { return tcpSegment(outside, local, 0x10, text) },
			"ip:192.168.50.99": func(text string) (uint16, []byte) { return tcpSegment(outside, local, 0x10, text) },
		}
		for from, packet := range forged {
			lie := fmt.Sprintf("no answer by %s, IPv%s", from, f)
			kind, bytesOf := packet(lie)
			frame := geneve(ethernet(virtual, virtual, kind, bytesOf))
			if arrives(t, victim, func() { sendTunnel(t, l, from, a.Node(), frame) }, func(got []byte) bool { return bytes.Contains(got, []byte(lie)) }, honest) {
				t.Errorf("%s: it arrived", lie)
			}
			// Nor does a packet of the other nodes' pods come by the node with the address.
			lie = fmt.Sprintf("pod d of node3 by node2, IPv%s", f)
			kind, bytesOf = udpPacket(d.Address(f), a.Address(f), 80, lie)
			frame = geneve(ethernet(virtual, virtual, kind, bytesOf))
			if arrives(t, victim, func() { sendTunnel(t, l, "node:node2", a.Node(), frame) }, func(got []byte) bool { return bytes.Contains(got, []byte(lie)) }, honest) {
				t.Errorf("%s: it arrived", lie)
			}
		}
		talk(t, open[f], "after forged answers")
	}
}

// withoutEgress sends packets of pod d of node3, which no Egress selects, through the tunnel to the node with the addresses. They do not come out of it.
func withoutEgress(t *testing.T, l *lab.Lab, hosts map[model.Family]*outsideHost) {
	t.Helper()
	virtual := net.HardwareAddr{0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	outside, _, err := l.Host("ip:203.0.113.9", model.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	watched := openWire(t, outside, "br0")
	for _, f := range model.Families() {
		to := hosts[f].addr.Addr()
		lie := fmt.Sprintf("a pod without an Egress, IPv%s", f)
		send := func(from *lab.Pod, port uint16, text string) {
			kind, packet := udpPacket(from.Address(f), to, port, text)
			sendTunnel(t, l, "node:"+from.Node().Name(), l.Node("node2"), geneve(ethernet(virtual, virtual, kind, packet)))
		}
		honest := func(text string) { send(l.Pod(pod("a")), markerPort, text) }
		// The bridge hands only frames for its own address to this socket, so no packet of the tunnel.
		if arrives(t, watched, func() { send(l.Pod(pod("d")), 80, lie) }, func(frame []byte) bool { return bytes.Contains(frame, []byte(lie)) }, honest) {
			t.Errorf("%s: it has left", lie)
		}
	}
}

// withoutMasquerade lets another program flush all rules of node1 while its agent stands still. The flows begin anew meanwhile, with the
// pod's address.
func withoutMasquerade(t *testing.T, l *lab.Lab, silent *oneWay) {
	t.Helper()
	n := l.Node("node1")
	signal := func(s syscall.Signal) {
		if err := syscall.Kill(n.AgentPID(), s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	defer signal(syscall.SIGCONT)
	// Each thread stops when it leaves the kernel, and would repair the tables until then.
	eventually.True(t, "the agent has stopped", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", n.AgentPID()))
		return err == nil && len(threads) > 0 && !slices.ContainsFunc(threads, func(path string) bool {
			stat, err := os.ReadFile(path)
			return err == nil && !bytes.Contains(stat, []byte(") T "))
		})
	})
	shell(t, n, "nft flush ruleset")
	for _, sink := range silent.sink {
		shell(t, n, "conntrack -D -d "+sink.String())
	}
	silent.expect(t, "without masquerade", func(f model.Family) string { return l.Pod(pod("a")).Address(f).String() })
}
