package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/ovstest"
)

// TestSNAT: with snat openflow, an outside host sees pods with their node's address and a port of the range, and the bridge translates.
// The node's own connections and ports work as before, an Egress has precedence, and nothing is left after the setting goes.
func TestSNAT(t *testing.T) {
	t.Parallel()
	l := &snatLab{Lab: newLabWith(t, lab.Config{Backend: config.OpenFlow, SNAT: config.OpenFlow, Datapath: ovsdb.DatapathNetdev})}
	base := state(t, threeNodes, onlyFromC, `{kind: NetworkPolicy, metadata: {namespace: x, name: b-stays}, spec: {podSelector: {matchLabels: {pod: b}}, policyTypes: [Egress]}}`)
	set(t, l.Lab, base)
	l.node = l.Node("node1")
	l.outside = newOutsideHost(t, l.Lab, "203.0.113.9", model.IPv4)
	l.pods(t)
	l.ownPorts(t, 12345, 40001)
	l.programmed(t)
	l.agentRestarts(t)

	l.sameID(t)
	silent := startOneWay(t, l.Lab, l.Pod(pod("a")))
	ofNode := func(f model.Family) string { return l.node.Address(f).String() }
	silent.expect(t, "translated by the bridge", ofNode)
	open, _ := l.translated(t, "a")
	set(t, l.Lab, base.Merge(state(t, strings.ReplaceAll(egresses, "192.168.50.100", "192.168.50.101"))))
	expectSource(t, l.Lab, l.outside, "a", "192.168.50.101")
	silent.expect(t, "with an Egress", func(f model.Family) string {
		return map[model.Family]string{model.IPv4: "192.168.50.101", model.IPv6: "fd00:10::c0a8:3264"}[f]
	})
	l.translated(t, "c")
	talk(t, open, "from before the Egress")
	set(t, l.Lab, base)
	silent.expect(t, "after the Egress", ofNode)
	talk(t, open, "after the Egress")
	l.translated(t, "a")

	if err := control.NewClient(l.node.ControlSocket()).SetBackend(t.Context(), config.NFTables); err == nil || !strings.Contains(err.Error(), "snat: openflow does not work with backend nftables") {
		t.Errorf("a change to nftables: %v", err)
	}
	l.switchRestarts(t)
	l.tampered(t)
	l.withoutRoute(t)
	l.turnedOff(t)
}

// snatLab is a lab whose bridges translate.
type snatLab struct {
	*lab.Lab
	node    *lab.Node
	outside *outsideHost
}

// translated checks that a pod comes to the outside host translated by its node's bridge, and returns its connection.
func (l *snatLab) translated(t *testing.T, name string) (net.Conn, netip.AddrPort) {
	t.Helper()
	p := l.Pod(pod(name))
	conn, seen, err := l.outside.connectBy(t, p.Namespace(), net.Dialer{}, patience)
	ports := model.SNATPorts()
	if err != nil || seen.Addr() != p.Node().Address(model.IPv4) || seen.Port() < ports.First || seen.Port() > ports.Last {
		t.Fatalf("%s comes to the outside as %s: %v", name, seen, err)
	}
	return conn, seen
}

// pods checks the ways of pods.
func (l *snatLab) pods(t *testing.T) {
	t.Helper()
	seen := map[netip.AddrPort]bool{}
	for _, name := range []string{"a", "a", "c", "d", "a"} {
		conn, from := l.translated(t, name)
		if seen[from] {
			t.Errorf("two connections are seen from %s", from)
		}
		seen[from] = true
		talk(t, conn, "translated")
	}
	expectSource(t, l.Lab, l.outside, "b", nobody) // policy
	expect(t, l.Lab, true, "x/a", "ip:203.0.113.9", model.UDP, 5353)
	if out := shellIn(t, l.Pod(pod("a")).Namespace(), "ping -c 1 -w 10 203.0.113.9"); !strings.Contains(out, " 0% packet loss") {
		t.Errorf("ping of the outside host: %s", out)
	}
	// IPv6 is the host's.
	six := newOutsideHost(t, l.Lab, "203.0.113.9", model.IPv6)
	expectSource(t, l.Lab, six, "a", l.node.Address(model.IPv6).String())
	// The cluster sees the pods' own addresses.
	expect(t, l.Lab, true, "x/c", "x/a", model.TCP, 80)
	expect(t, l.Lab, false, "x/d", "x/a", model.TCP, 80)
	expect(t, l.Lab, true, "x/a", "x/c", model.TCP, 80)
	expect(t, l.Lab, true, "x/a", "node:node1", model.TCP, 80)
	expect(t, l.Lab, true, "x/a", "node:node2", model.TCP, 80)
	if out, errs, _ := felixctl(t, "trace", "--socket", l.node.ControlSocket(), "--from", "x/a", "--to", "203.0.113.9", "--port", "7000/tcp"); !strings.Contains(out, "translated") || strings.Contains(out+errs, "unknown") {
		t.Errorf("the trace of a translated packet:\n%s%s", out, errs)
	}
}

// sameID checks that a pod and its node get all answers to echo requests to one host with one id.
func (l *snatLab) sameID(t *testing.T) {
	t.Helper()
	senders := map[string]*namespace.Namespace{"pod a": l.Pod(pod("a")).Namespace(), "node1": l.node.Namespace()}
	conns := map[string]net.Conn{}
	for name, ns := range senders {
		err := ns.Do(func() (err error) {
			conns[name], err = net.Dial("ip4:icmp", l.outside.addr.Addr().String())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer conns[name].Close()
	}
	for seq := range byte(3) {
		for name, conn := range conns {
			request := []byte{8, 0, 0, 0, 3, 9, 0, seq, name[0]}
			binary.BigEndian.PutUint16(request[2:], internetChecksum(request))
			if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			_, err := conn.Write(request)
			for got := make([]byte, 100); err == nil; {
				var n int
				// The socket of the node also gets the answers to others, with another id.
				n, err = conn.Read(got) // with the header of IPv4
				if err == nil && n == 20+len(request) && got[20] == 0 && bytes.Equal(got[24:n], request[4:]) {
					break
				}
			}
			if err != nil {
				t.Errorf("%s: echo request %d with id 777: %v", name, seq, err)
			}
		}
	}
}

// ownPorts checks connections of the node itself, with ports of the range and others.
func (l *snatLab) ownPorts(t *testing.T, bound ...uint16) {
	t.Helper()
	own := l.node.Address(model.IPv4)
	for _, port := range bound {
		from := netip.AddrPortFrom(own, port)
		conn, seen, err := l.outside.connectBy(t, l.node.Namespace(), net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(from)}, patience)
		if err != nil || seen != from {
			t.Errorf("the node's own connection from %s is seen from %s: %v", from, seen, err)
			continue
		}
		talk(t, conn, "of the node")
	}
	fabric, _, err := l.Host("ip:203.0.113.9", model.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range []uint16{10250, 22} {
		serveAndDial(t, l.node.Namespace(), fabric, netip.AddrPortFrom(own, port))
	}
	if out := shell(t, l.node, "ping -c 1 -w 10 203.0.113.9"); !strings.Contains(out, " 0% packet loss") {
		t.Errorf("the node's ping of the outside host: %s", out)
	}
	if out := shellIn(t, fabric, "ping -c 1 -w 10 "+own.String()); !strings.Contains(out, " 0% packet loss") {
		t.Errorf("the outside host's ping of the node: %s", out)
	}
}

// serveAndDial checks that a server in one namespace is reached from another one, by TCP and UDP.
func serveAndDial(t *testing.T, server, client *namespace.Namespace, at netip.AddrPort) {
	t.Helper()
	var listener net.Listener
	var packets net.PacketConn
	err := server.Do(func() (err error) {
		if listener, err = net.Listen("tcp", at.String()); err == nil {
			packets, err = net.ListenPacket("udp", at.String())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	defer packets.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			fmt.Fprint(conn, "!")
			conn.Close()
		}
	}()
	go func() {
		buffer := make([]byte, 1)
		for {
			n, from, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = packets.WriteTo(buffer[:n], from)
		}
	}()
	for _, network := range []string{"tcp", "udp"} {
		var conn net.Conn
		err := client.Do(func() (err error) {
			conn, err = (&net.Dialer{Timeout: patience}).DialContext(t.Context(), network, at.String())
			return err
		})
		if err != nil {
			t.Errorf("port %s of the node, %s: %v", at, network, err)
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = conn.Write([]byte("!"))
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Errorf("port %s of the node, %s: %v", at, network, err)
		}
		conn.Close()
	}
}

// programmed compares what is programmed with what is desired, and with the rows of the reference.
func (l *snatLab) programmed(t *testing.T) {
	t.Helper()
	liveIsWanted(t, l.Name(), "node1")
	for line := range strings.Lines(shell(t, l.node, "nft list ruleset; iptables-save; iptables-legacy-save") + "\n") {
		others := strings.Contains(line, "ct status dnat") || strings.Contains(line, "meta l4proto != tcp meta l4proto != udp")
		if strings.Contains(strings.ToLower(line), "masquerade") && !strings.Contains(line, "ip6 ") && !others {
			t.Errorf("the host masquerades: %s", line)
		}
	}
	installed := map[string]bool{}
	for line := range strings.Lines(shell(t, l.node, "ovs-ofctl -O OpenFlow13 --no-stats --no-names dump-flows unix:"+l.node.OVSDir()+"/br-int.mgmt")) {
		if f, err := ovstest.ParseFlow(line); err == nil {
			installed[f.String()] = true
		}
	}
	// The address and the ports of this node, in place of those of the reference.
	here := strings.NewReplacer("192.168.77.100", l.node.Address(model.IPv4).String(), "in_port=7 ", fmt.Sprintf("in_port=%d ", ovsdb.SNATUplinkOFPort), "actions=LOCAL", fmt.Sprintf("actions=output:%d", ovsdb.SNATHostOFPort))
	for _, row := range ovstest.Reference(t, "SNAT") {
		if _, deviates := ovstest.Deviations()[row.ID]; deviates {
			continue
		}
		want, err := ovstest.ParseFlow(here.Replace(row.Flow.String()))
		if err != nil {
			t.Fatalf("%s: %v", row.ID, err)
		}
		if !installed[want.String()] {
			t.Errorf("%s of the reference is not installed: %s", row.ID, want)
		}
	}
}

// agentRestarts: connections go on without the agent, which writes nothing when it starts again.
func (l *snatLab) agentRestarts(t *testing.T) {
	t.Helper()
	conn, _ := l.translated(t, "a")
	if err := l.node.KillAgent(); err != nil {
		t.Fatal(err)
	}
	talk(t, conn, "without the agent")
	if err := l.RestartAgent(t.Context(), "node1"); err != nil {
		t.Fatal(err)
	}
	talk(t, conn, "after the restart")
	noWrites(t, l.node, "after the restart")
}

// switchRestarts: after a restart of the switch, which forgets translations, new connections are translated, and the node's own
// port works.
func (l *snatLab) switchRestarts(t *testing.T) {
	t.Helper()
	if err := l.node.OVS().KillVSwitchd(); err != nil {
		t.Fatal(err)
	}
	if err := l.node.OVS().StartVSwitchd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.translated(t, "a")
	l.ownPorts(t, 12346)
}

// tampered: the agent repairs the flows of the bridge with the uplink.
func (l *snatLab) tampered(t *testing.T) {
	t.Helper()
	flows := func() int {
		return strings.Count(shell(t, l.node, "ovs-ofctl --no-stats dump-flows unix:"+l.node.OVSDir()+"/br-phy.mgmt"), "actions=")
	}
	before := flows()
	shell(t, l.node, "ovs-ofctl del-flows unix:"+l.node.OVSDir()+"/br-phy.mgmt tcp")
	eventually.True(t, "the flows are repaired", func() bool { return flows() == before })
	l.translated(t, "a")
}

// withoutRoute: without a next hop pods do not come out at all, and status says why.
func (l *snatLab) withoutRoute(t *testing.T) {
	t.Helper()
	route := strings.TrimSpace(shell(t, l.node, "ip -4 route show default"))
	shell(t, l.node, "ip route del default")
	eventually.True(t, "status names the missing route", func() bool {
		s, err := l.node.Status(t.Context())
		return err == nil && slices.ContainsFunc(s.Problems, func(p model.Problem) bool {
			return strings.Contains(p.Reason, "snat openflow: there is no default route")
		})
	})
	comesOut := func() bool {
		_, _, err := l.outside.connect(t, l.Pod(pod("a")).Namespace(), time.Second)
		return err == nil
	}
	// The agent names the problem when it computes the flows, and writes them after that.
	eventually.True(t, "the pod does not come out", func() bool { return !comesOut() })
	expectSource(t, l.Lab, l.outside, "a", nobody)
	shell(t, l.node, "ip route add "+route)
	eventually.True(t, "the pod comes out again", comesOut)
}

// turnedOff: the host masquerades again, and nothing of the bridge's translation is left.
func (l *snatLab) turnedOff(t *testing.T) {
	t.Helper()
	l.node.Settings().SNAT = config.HostSNAT
	if err := l.RestartAgent(t.Context(), "node1"); err != nil {
		t.Fatal(err)
	}
	expectSource(t, l.Lab, l.outside, "a", l.node.Address(model.IPv4).String())
	l.ownPorts(t, 12347)
	if flows := shell(t, l.node, "ovs-ofctl --no-stats dump-flows unix:"+l.node.OVSDir()+"/br-phy.mgmt"); strings.Count(flows, "actions=") != 1 || !strings.Contains(flows, "NORMAL") {
		t.Errorf("flows of the bridge with the uplink:\n%s", flows)
	}
	if ports := shell(t, l.node, "ovs-vsctl --db=unix:"+l.node.OVS().DBSocket()+" list-ports br-int; ovs-vsctl --db=unix:"+l.node.OVS().DBSocket()+" list-ports br-phy"); strings.Contains(ports, "snat") || !strings.Contains(ports, "flx-gw0") {
		t.Errorf("ports: %s", ports)
	}
}
