package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

// newMultitenantLab makes a lab with pipelineVariant: openshift.
func newMultitenantLab(t *testing.T) *lab.Lab {
	t.Helper()
	return newLabWith(t, lab.Config{
		Backend: config.OpenFlow, Tunnel: "vxlan", Isolation: config.IsolationNamespaces, ServiceProxy: config.ServiceProxyFull, PipelineVariant: config.VariantOpenShift,
	})
}

const multitenantNodes = "{kind: Node, metadata: {name: node1}}\n---\n{kind: Node, metadata: {name: node2}}\n"

// reached is whom each project reaches: x and milk are joined, common is global, and loner has no number.
var reached = map[string]string{"x": "x milk common", "milk": "x milk common", "other": "other common", "common": "x milk other common", "loner": ""}

func multitenantProjects(milk int) string {
	return multitenantNodes + project("x", 7) + project("milk", milk) + project("other", 9) + project("common", 0) + project("loner", -1)
}

// matrix probes all pods from a pod of each project, and from nodes.
func multitenantMatrix(t *testing.T, l *lab.Lab, reach map[string]string) {
	t.Helper()
	var probes []lab.Probe
	var wanted []bool
	add := func(through bool, from, to string) {
		probes, wanted = append(probes, lab.Probe{From: from, To: to, Protocol: model.TCP, Port: 80, Family: model.IPv4}), append(wanted, through)
	}
	for from, all := range reach {
		for to := range reach {
			for _, node := range []string{"1", "2"} {
				if from != to || node == "2" {
					add(strings.Contains(" "+all+" ", " "+to+" "), from+"/on1", to+"/on"+node)
				}
			}
		}
		for _, node := range []string{"node1", "node2"} {
			add(all != "", "node:"+node, from+"/on1")
			add(all != "", from+"/on1", "node:"+node)
		}
	}
	probeAll(t, l, probes, wanted)
}

// probeAll fails the test for each probe that does not go as wanted.
func probeAll(t *testing.T, l *lab.Lab, probes []lab.Probe, wanted []bool) {
	t.Helper()
	for i, r := range l.Probe(t.Context(), probes, probeTimeout) {
		if wanted[i] && !r.Through {
			r = l.Probe(t.Context(), probes[i:i+1], patience)[0]
		}
		if !r.Tried || r.Through != wanted[i] {
			t.Errorf("%s: through %t (%s), want %t", fmt.Sprintf("%s -> %s %s/%d", probes[i].From, probes[i].To, probes[i].Protocol, probes[i].Port), r.Through, r.Reason, wanted[i])
		}
	}
}

// multitenantServices returns a Service of each project with its pods as endpoints, and "stray" of project x, whose EndpointSlice was
// written by hand: it has pods of the named project.
func multitenantServices(l *lab.Lab, stray string) string {
	var b strings.Builder
	write := func(namespace, name, endpoints string, number int) {
		fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: Service, metadata: {namespace: %s, name: %s}, spec: {clusterIPs: [10.96.0.%d], ports: [{port: %d}]}}\n", namespace, name, number, servicePort)
		for i, node := range []string{"node1", "node2"} {
			p := l.Pod(model.PodID{Namespace: endpoints, Name: fmt.Sprint("on", i+1)})
			fmt.Fprintf(&b, "---\n{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {namespace: %s, name: %[2]s-%[3]d, labels: {kubernetes.io/service-name: %[2]s}}, addressType: IPv4, ports: [{name: '', port: 80}], endpoints: [{addresses: [%[4]s], nodeName: %[5]s}]}\n",
				namespace, name, i, p.Address(model.IPv4), node)
		}
	}
	for i, name := range slices.Sorted(maps.Keys(reached)) {
		write(name, name, name, multitenantService+i)
	}
	write("x", "stray", stray, multitenantStray)
	return b.String()
}

// The last bytes of addresses of Services: of the first project, and of "stray".
const multitenantService, multitenantStray = 10, 30

func setServices(t *testing.T, l *lab.Lab, objects string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(l.Manifests(), "services.yaml"), []byte(objects), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := l.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// multitenantThroughServices tries each Service from a pod of each project on both nodes, several times: each endpoint has its turn.
func multitenantThroughServices(t *testing.T, l *lab.Lab, reach map[string]string) {
	t.Helper()
	var running sync.WaitGroup
	defer running.Wait()
	for i, to := range slices.Sorted(maps.Keys(reach)) {
		for from, all := range reach {
			for _, node := range []string{"1", "2"} {
				through := strings.Contains(" "+all+" ", " "+to+" ")
				for range 3 {
					running.Go(func() { multitenantConnect(t, l, through, from, node, multitenantService+i, to) })
				}
			}
		}
	}
}

func multitenantConnect(t *testing.T, l *lab.Lab, through bool, from, node string, service int, name string) {
	t.Helper()
	ns, source, err := l.Host(from+"/on"+node, model.IPv4)
	timeout := probeTimeout
	if through {
		timeout = patience
	}
	var conn *os.File
	if err == nil {
		conn, err = traffic.Connect(ns, source, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 0, byte(service)}), servicePort), timeout)
	}
	if err == nil {
		err = traffic.Echo(conn, timeout)
		conn.Close()
	}
	if (err == nil) != through {
		t.Errorf("%s/on%s to the Service of %s: %v, want through %t", from, node, name, err, through)
	}
}

// TestMultitenant sends packets between projects with pipelineVariant: openshift, on one node and between two, from nodes, and through
// Services. Joining and isolating is in force when it is reported, and ends what it denies.
func TestMultitenant(t *testing.T) {
	t.Parallel()
	l := newMultitenantLab(t)
	set(t, l, state(t, multitenantProjects(-1)))
	// Services and the number of milk are in a file of their own, so that one changes without the other.
	services := multitenantServices(l, "milk")
	number := func(milk int) {
		setServices(t, l, services+fmt.Sprintf("---\n{apiVersion: network.openshift.io/v1, kind: NetNamespace, metadata: {name: milk}, netname: milk, netid: %d}\n", milk))
	}
	number(7)
	multitenantMatrix(t, l, reached)
	multitenantThroughServices(t, l, reached)
	stray := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 0, multitenantStray}), servicePort)
	milk := netip.AddrPortFrom(l.Pod(model.PodID{Namespace: "milk", Name: "on2"}).Address(model.IPv4), 80)
	ending := []*talker{
		talkTo(t, "x to milk", dialTo(t, l, "on1", "tcp", milk)),
		talkTo(t, "x to milk through a Service of x", dialTo(t, l, "on1", "tcp", stray)),
	}
	kept := talkTo(t, "x to x", dialTo(t, l, "on1", "tcp", netip.AddrPortFrom(l.Pod(pod("on2")).Address(model.IPv4), 80)))
	for _, k := range append(ending, kept) {
		k.wait(t)
	}
	isolated := maps.Clone(reached)
	isolated["x"], isolated["milk"] = "x common", "milk common"
	number(8)
	changed := time.Now()
	multitenantMatrix(t, l, isolated)
	multitenantThroughServices(t, l, isolated)
	multitenantConnect(t, l, false, "x", "1", multitenantStray, "x with endpoints of milk")
	for _, k := range ending {
		if at, _ := k.last(); at.Sub(changed) > endedWithin {
			t.Errorf("%s: an echo %s after the end of the join", k.name, at.Sub(changed))
		}
	}
	kept.wait(t)
	hasProblem(t, l.Node("node1"), "service/x/stray", "is left out")
	hasProblem(t, l.Node("node1"), "namespace/loner", "no NetNamespace gives it a number")

	number(7)
	multitenantConnect(t, l, true, "x", "1", multitenantStray, "x with endpoints of milk, joined again")
	multitenantMatrix(t, l, reached)
}

// hasProblem waits until status names an object with a reason.
func hasProblem(t *testing.T, n *lab.Node, object, reason string) {
	t.Helper()
	eventually.True(t, object+" is named", func() bool {
		s, err := n.Status(t.Context())
		return err == nil && slices.ContainsFunc(s.Problems, func(p model.Problem) bool { return p.Object.String() == object && strings.Contains(p.Reason, reason) })
	})
}

// TestMultitenantClosesWhatItCannotLimit: the pods that a policy selects neither send nor receive, and the policy is named.
func TestMultitenantClosesWhatItCannotLimit(t *testing.T) {
	t.Parallel()
	const policies = `---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: x, name: all}, spec: {podSelector: {}, ingress: [{}]}}
---
{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: open}, spec: {tier: emergency, priority: 1, appliedTo: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: milk}}}], egress: [{action: Allow}]}}
---
{apiVersion: network.openshift.io/v1, kind: EgressNetworkPolicy, metadata: {namespace: other, name: outside}, spec: {egress: [{type: Deny, to: {cidrSelector: 192.0.2.0/24}}]}}
`
	l := newMultitenantLab(t)
	set(t, l, state(t, multitenantProjects(8)+project("lone", 12)+policies))
	closed := map[string]string{"x": "", "milk": "", "other": "", "loner": "", "lone": "lone common", "common": "lone common"}
	multitenantMatrix(t, l, closed)
	for _, object := range []string{"networkpolicy/x/all", "clusternetworkpolicy.crd.antrea.io/open", "egressnetworkpolicy.network.openshift.io/other/outside"} {
		hasProblem(t, l.Node("node1"), object, "not in force with pipelineVariant: openshift")
	}
	status, err := l.Node("node1").Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for pod, reason := range map[string]string{"x/on1": "networkpolicy/x/all selects it", "loner/on1": "no NetNamespace gives its namespace a number", "lone/on1": ""} {
		if !slices.ContainsFunc(status.Endpoints, func(e control.Endpoint) bool {
			return e.Namespace+"/"+e.Name == pod && (e.State == control.EndpointProgrammed) == (reason == "") && strings.Contains(e.Reason, reason)
		}) {
			t.Errorf("status of %s, want reason %q: %+v", pod, reason, status.Endpoints)
		}
	}
	set(t, l, state(t, multitenantProjects(7)))
	multitenantMatrix(t, l, reached)
}

// TestMultitenantRestart: flows stay while the agent is away, come back with a new switch, and are repaired.
func TestMultitenantRestart(t *testing.T) {
	t.Parallel()
	l := newMultitenantLab(t)
	set(t, l, state(t, multitenantProjects(7)))
	n := l.Node("node1")
	before := flows(t, n)
	if err := n.KillAgent(); err != nil {
		t.Fatal(err)
	}
	multitenantMatrix(t, l, reached)
	if err := n.StartAgent(); err != nil {
		t.Fatal(err)
	}
	if err := n.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := flows(t, n); now != before {
		t.Errorf("the flows after a restart of the agent:\n%s\nbefore:\n%s", now, before)
	}
	ofctl(t, n, "del-flows", "table=80")
	eventually.True(t, "the flows are repaired", func() bool { return flows(t, n) == before })
	ofctl(t, n, "add-flow", "cookie=0xf11b010000000000,table=80,priority=300,actions=output:reg2")
	eventually.True(t, "the foreign flow is removed", func() bool { return flows(t, n) == before })
	if err := errors.Join(n.OVS().KillVSwitchd(), n.OVS().StartVSwitchd(t.Context())); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "traffic after the switch came back", func() bool {
		return l.Probe(t.Context(), []lab.Probe{{From: "x/on1", To: "x/on2", Protocol: model.TCP, Port: 80, Family: model.IPv4}}, probeTimeout)[0].Through
	})
	if now := flows(t, n); now != before {
		t.Errorf("the flows of the new switch:\n%s\nbefore:\n%s", now, before)
	}
	multitenantMatrix(t, l, reached)
}

// TestMultitenantChange: the setting goes on and off. Projects that do not reach each other in both states never do, and nothing of one pipeline stays
// in the other.
func TestMultitenantChange(t *testing.T) {
	t.Parallel()
	l := newLabWith(t, lab.Config{Backend: config.OpenFlow, Tunnel: "vxlan", Isolation: config.IsolationNamespaces, ServiceProxy: config.ServiceProxyFull})
	set(t, l, state(t, multitenantProjects(7)))
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for _, to := range []string{"on1", "on2"} {
		from, to := l.Pod(model.PodID{Namespace: "other", Name: "on1"}), l.Pod(model.PodID{Namespace: "x", Name: to})
		running.Go(func() {
			for ctx.Err() == nil {
				if conn, err := dialIn(from.Namespace(), "tcp", netip.AddrPortFrom(to.Address(model.IPv4), 80).String(), 20*time.Millisecond); err == nil {
					conn.Close()
					t.Errorf("other reached %s", to.Address(model.IPv4))
				}
			}
		})
	}
	for _, step := range []struct {
		variant, backend, owner string
		others                  []string
	}{
		{config.VariantOpenShift, config.OpenFlow, "0xf11b", []string{"0xf11c", "0xf11d", "0xf11e"}},
		{config.VariantDefault, config.OpenFlow, "0xf11d", []string{"0xf11b"}},
		{config.VariantOpenShift, config.OpenFlow, "0xf11b", []string{"0xf11c", "0xf11d", "0xf11e"}},
		{config.VariantDefault, config.NFTables, "0xf11c", []string{"0xf11b", "0xf11d"}},
	} {
		for _, name := range []string{"node1", "node2"} {
			n := l.Node(name)
			n.Settings().PipelineVariant, n.Settings().Backend = step.variant, step.backend
			if err := l.RestartAgent(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			text := flows(t, n)
			for _, other := range step.others {
				if strings.Contains(text, "cookie="+other) {
					t.Errorf("%s with pipelineVariant %s, backend %s has flows of %s", name, step.variant, step.backend, other)
				}
			}
			if !strings.Contains(text, "cookie="+step.owner) {
				t.Errorf("%s with pipelineVariant %s, backend %s has no flows of %s:\n%s", name, step.variant, step.backend, step.owner, text)
			}
		}
		t.Run(step.variant+" "+step.backend, func(t *testing.T) {
			probeAll(t, l, []lab.Probe{
				{From: "x/on1", To: "x/on2", Protocol: model.TCP, Port: 80, Family: model.IPv4},
				{From: "x/on1", To: "milk/on2", Protocol: model.TCP, Port: 80, Family: model.IPv4},
				{From: "x/on1", To: "common/on1", Protocol: model.TCP, Port: 80, Family: model.IPv4},
				{From: "node:node2", To: "x/on1", Protocol: model.TCP, Port: 80, Family: model.IPv4},
				{From: "x/on1", To: "other/on2", Protocol: model.TCP, Port: 80, Family: model.IPv4},
			}, []bool{true, true, true, true, false})
		})
	}
}

// TestMultitenantForgedNumbers: a packet through the tunnel with the number of another project, of a node or a stranger, comes to no pod.
func TestMultitenantForgedNumbers(t *testing.T) {
	t.Parallel()
	l := newMultitenantLab(t)
	set(t, l, state(t, multitenantProjects(7)))
	a, b := l.Pod(model.PodID{Namespace: "x", Name: "on1"}), l.Pod(model.PodID{Namespace: "x", Name: "on2"})
	other := l.Pod(model.PodID{Namespace: "other", Name: "on2"})
	victim := openWire(t, a.Namespace(), "eth0")
	send := func(from string, number uint32, source netip.Addr, text string) {
		kind, packet := udpPacket(source, a.Address(model.IPv4), markerPort, text)
		sendTunnelTo(t, l, from, a.Node(), 4789, vxlan(number, ethernet(podMAC(t, b), podMAC(t, a), kind, packet)))
	}
	honest := func(text string) { send("node:node2", 7, b.Address(model.IPv4), text) }
	for _, c := range []struct {
		name, from string
		number     uint32
		source     netip.Addr
	}{
		{"another project's number of a node", "node:node2", 9, other.Address(model.IPv4)},
		{"no number that a project has", "node:node2", 1234, b.Address(model.IPv4)},
		{"a stranger with the right number", "ip:192.168.50.99", 7, b.Address(model.IPv4)},
		{"a stranger with the global number", "ip:192.168.50.99", 0, b.Address(model.IPv4)},
		{"a node with an address of the receiving node", "node:node2", 7, l.Pod(model.PodID{Namespace: "milk", Name: "on1"}).Address(model.IPv4)},
		{"a node with an address outside", "node:node2", 0, netip.MustParseAddr("203.0.113.5")},
	} {
		t.Run(c.name, func(t *testing.T) {
			lie := "lie " + t.Name()
			if arrives(t, victim, func() { send(c.from, c.number, c.source, lie) }, func(frame []byte) bool { return bytes.Contains(frame, []byte(lie)) }, honest) {
				t.Error("the packet arrived")
			}
		})
	}
}

// vxlan returns a packet of a tunnel (RFC 7348).
func vxlan(number uint32, frame []byte) []byte {
	return append([]byte{8, 0, 0, 0, byte(number >> 16), byte(number >> 8), byte(number), 0}, frame...)
}

// multitenantTunnelService leads a NodePort to the tunnel port of node1.
const multitenantTunnelService = `---
{apiVersion: v1, kind: Service, metadata: {namespace: other, name: tunnel}, spec: {type: NodePort, clusterIPs: [10.96.0.40], ports: [{port: 1, protocol: UDP, nodePort: 30789}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {namespace: other, name: tunnel, labels: {kubernetes.io/service-name: tunnel}}, addressType: IPv4, ports: [{name: '', port: 4789, protocol: UDP}], endpoints: [{addresses: [%s]}]}
`

// TestMultitenantTunnelService: a pod sends to a NodePort that leads to the tunnel port of the node, where its packet would be one of its own node, with
// any number. The Service does not lead there, and neither does a translation of another program, on the node itself or through it.
func TestMultitenantTunnelService(t *testing.T) {
	t.Parallel()
	l := newMultitenantLab(t)
	set(t, l, state(t, multitenantProjects(7)+"---\n{kind: Node, metadata: {name: node3}}\n"))
	victim, through := l.Node("node1"), l.Node("node3")
	setServices(t, l, fmt.Sprintf(multitenantTunnelService, victim.Outer()))
	hasProblem(t, victim, "service/other/tunnel", "its port is one of a tunnel")

	// The userspace datapath takes tunnel packets before the host: what comes to the host's port has passed all of its rules. On the kernel's the port is in use.
	tunnel, err := listenUDP(victim, 4789)
	if err != nil {
		t.Skipf("the tunnel port of the host is in use: %v", err)
	}
	t.Cleanup(func() { tunnel.Close() })
	marker, err := listenUDP(victim, 4790)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { marker.Close() })
	for _, n := range []*lab.Node{victim, through} {
		nft(t, n, fmt.Sprintf("add table ip theirs; add chain ip theirs pre { type nat hook prerouting priority -150; }; add rule ip theirs pre udp dport 30790 dnat to %[1]s:4789; add rule ip theirs pre udp dport 30791 dnat to %[1]s:4790; "+
			"add chain ip theirs post { type nat hook postrouting priority 150; }; add rule ip theirs post udp dport 4789-4790 masquerade", victim.Outer()))
	}
	// Through another node the packet is one of the tunnel: that node's gateway sends with the global number.
	a := l.Pod(model.PodID{Namespace: "x", Name: "on1"})
	pods := openWire(t, a.Namespace(), "eth0")
	for _, c := range []struct {
		name, from string
		to         *lab.Node
		port       uint16
	}{
		{"through a Service at the tunnel port", "other/on2", victim, 30789},
		{"through a translation to the tunnel port", "other/on2", victim, 30790},
		{"through a translation of another node", "other/on2", through, 30790},
		{"from outside, through a translation of another node", "ip:192.168.50.99", through, 30790},
	} {
		t.Run(c.name, func(t *testing.T) {
			eventually.True(t, "a packet to another port of the node", func() bool {
				kind, packet := udpPacket(netip.MustParseAddr("10.10.2.1"), a.Address(model.IPv4), markerPort, "lie "+t.Name())
				sendTunnelTo(t, l, c.from, c.to, c.port, vxlan(0, ethernet(podMAC(t, a), podMAC(t, a), kind, packet)))
				sendTunnelTo(t, l, c.from, c.to, 30791, []byte("marker"))
				return received(marker, time.Second)
			})
			if received(tunnel, 100*time.Millisecond) {
				t.Error("the packet came to the tunnel port")
			}
			deadline := time.Now().Add(100 * time.Millisecond)
			for frame := pods.next(deadline); frame != nil; frame = pods.next(deadline) {
				if bytes.Contains(frame, []byte("lie "+t.Name())) {
					t.Fatal("the packet came to a pod")
				}
			}
		})
	}
}

// TestMultitenantOtherTranslation: kube-proxy, or another program that translates packets of pods, leads them to no pod.
func TestMultitenantOtherTranslation(t *testing.T) {
	t.Parallel()
	l := newMultitenantLab(t)
	set(t, l, state(t, multitenantProjects(7)))
	setServices(t, l, multitenantServices(l, "milk"))
	number := multitenantService + slices.Index(slices.Sorted(maps.Keys(reached)), "other")
	multitenantConnect(t, l, true, "other", "2", number, "other")
	nft(t, l.Node("node2"), fmt.Sprintf("add table ip theirs; add chain ip theirs pre { type nat hook prerouting priority -150; }; add rule ip theirs pre ip daddr 10.96.0.%d tcp dport %d dnat to %s:80",
		number, servicePort, l.Pod(model.PodID{Namespace: "x", Name: "on2"}).Address(model.IPv4)))
	multitenantConnect(t, l, false, "other", "2", number, "other, translated to x")
}

// listenUDP opens a port of a node.
func listenUDP(n *lab.Node, port uint16) (conn *net.UDPConn, err error) {
	doErr := n.Namespace().Do(func() error {
		conn, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.IPv4Unspecified(), port)))
		return nil
	})
	return conn, errors.Join(err, doErr)
}

// received reports whether a packet comes in time.
func received(conn *net.UDPConn, wait time.Duration) bool {
	_ = conn.SetReadDeadline(time.Now().Add(wait)) // a closed conn reads nothing
	_, _, err := conn.ReadFrom(make([]byte, 64))
	return err == nil
}

// TestMultitenantTools: what judges by policies or knows the other pipeline says why it does not.
func TestMultitenantTools(t *testing.T) {
	t.Parallel()
	l := newMultitenantLab(t)
	set(t, l, state(t, multitenantProjects(7)))
	socket := l.Node("node1").ControlSocket()
	manifest := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(manifest, []byte("{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: x, name: p}, spec: {podSelector: {}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, words := range [][]string{
		{"trace", "--from", "x/on1", "--to", "x/on2", "--port", "80/tcp"},
		{"diff", "live", "wanted"},
		{"dump", "wanted"},
		{"preview", "-f", manifest},
		{"policies", "--order", "x/on1"},
		{"reach", "--to", "x/on1"},
		{"backend", "set", "nftables"},
		{"drops", "--for", "100ms"},
	} {
		out, errors, code := felixctl(t, append(words, "--socket", socket)...)
		if code == 0 || !strings.Contains(out+errors, "pipelineVariant") {
			t.Errorf("felixctl %v: exit code %d, want a reason with pipelineVariant\n%s%s", words, code, out, errors)
		}
	}
	for _, words := range [][]string{{"status"}, {"dump", "live"}, {"services"}, {"policies"}} {
		if out, errors, code := felixctl(t, append(words, "--socket", socket)...); code > 1 || strings.Contains(out+errors, "panic") {
			t.Errorf("felixctl %v: exit code %d\n%s%s", words, code, out, errors)
		}
	}
}
