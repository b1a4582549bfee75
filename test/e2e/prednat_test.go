package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/felixlike/felixlike/cmd/felixctl/preview"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/wireguard"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

// preDNATPolicy is a policy of all nodes before DNAT with these ingress rules.
func preDNATPolicy(rules string) string {
	return `
---
{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: pre, annotations: {felixlike.io/pre-dnat: "true"}}, spec: {priority: 1,
  appliedTo: [{nodeSelector: {}}], ingress: [` + rules + `]}}
`
}

// onlyOutside allows one client outside the cluster, in both families.
var onlyOutside = preDNATPolicy(fmt.Sprintf(`{action: Allow, from: [{ipBlock: {cidr: %s/32}}, {ipBlock: {cidr: "%s/128"}}]}, {action: Drop}`, outside, lab.Map(netip.MustParseAddr(outside))))

// hostsConfirmed waits until nodes have confirmed their policies.
func hostsConfirmed(t *testing.T, l *lab.Lab, nodes ...string) {
	t.Helper()
	for _, node := range nodes {
		eventually.True(t, node+" confirms the policy", func() bool {
			s, err := l.Node(node).Status(t.Context())
			return err == nil && s.Hosts != nil && s.Hosts.State == control.HostsConfirmed
		})
	}
}

// TestPreDNAT: a NodePort, the address of a load balancer and an external IP are open to one client outside and closed to another, over TCP, UDP and both
// families, with kube-proxy in both of its modes and without one. Pods and nodes reach cluster IPs, pods of other nodes and the outside as before. A
// client from before goes on. What is denied is named, with the addresses and ports that the client sees.
func TestPreDNAT(t *testing.T) {
	t.Parallel()
	needLab(t)
	iptables := iptablesBackends()
	cases := []struct{ proxy, backend string }{
		{"nftables", config.NFTables},
		{"nftables", config.OpenFlow},
		{"iptables", iptables[0]},
		{"iptables", config.NFTables},
		{config.ServiceProxyFull, config.NFTables},
		{config.ServiceProxyFull, config.OpenFlow},
		{config.ServiceProxyFull, iptables[len(iptables)-1]},
	}
	for _, test := range cases {
		t.Run(test.proxy+"/"+test.backend, func(t *testing.T) {
			t.Parallel()
			c := &serviceLab{}
			if test.proxy == config.ServiceProxyFull {
				c = newServiceLab(t, lab.Config{Backend: test.backend, ServiceProxy: config.ServiceProxyFull})
				c.runAgents(t)
			} else {
				program := kubeProxy(t)
				c = newServiceLab(t, lab.Config{Backend: test.backend})
				c.runKubeProxy(t, program, test.proxy)
			}
			c.served(t)
			previewPreDNAT(t, c, test.proxy == config.ServiceProxyFull)
			preDNAT(t, c)
			if test.proxy == config.ServiceProxyFull {
				tracePreDNAT(t, c)
			} else {
				traceNodePort(t, c)
			}
		})
	}
}

// previewPreDNAT: a preview of the policy names the addresses that preDNAT then finds closed, for all clients but the allowed one. An agent that does not
// serve Services says that it does not know them, unless the command is given them.
func previewPreDNAT(t *testing.T, c *serviceLab, proxy bool) {
	t.Helper()
	of := func(more ...string) (p preview.Preview) {
		t.Helper()
		out, errs, code := felixctl(t, append([]string{"preview", "--socket", c.Node("node1").ControlSocket(), "-f", file(t, onlyOutside), "-o", "json"}, more...)...)
		if err := json.Unmarshal([]byte(out), &p); err != nil || code != 1 {
			t.Fatalf("exit code %d, %v: %s%s", code, err, out, errs)
		}
		return p
	}
	p := of()
	if !proxy {
		if !p.NoServices || len(p.Services) > 0 {
			t.Errorf("without Services: %+v", p.Services)
		}
		plain, err := json.Marshal(comparedServices()[0].service())
		if err != nil {
			t.Fatal(err)
		}
		p = of("--services", file(t, string(plain)))
	}
	becomes := map[string]string{}
	for _, s := range p.Services {
		if slices.Contains(s.From, outside+"/32") || slices.Contains(s.From, outside) {
			t.Errorf("%s is closed to the allowed client: %v", s.Address, s.From)
		}
		if strings.HasSuffix(s.Service, "/plain") && slices.Contains(s.From, "anyone else outside") {
			becomes[s.Address] = s.Becomes
		}
	}
	for _, s := range clientProbes(stranger) {
		to := c.target(s)
		port := model.PortRange{Protocol: s.protocol, First: to.Port(), Last: to.Port()}
		address := map[string]string{"balancer1": fmt.Sprintf("loadBalancer %s %s", to.Addr(), port), "external1": fmt.Sprintf("externalIP %s %s", to.Addr(), port)}[s.to]
		if address = cmp.Or(address, fmt.Sprintf("nodePort %s", port)); becomes[address] != preview.Denied {
			t.Errorf("%s becomes %q: %v", address, becomes[address], becomes)
		}
	}
}

// clientProbes are the situations of a client, of the Service plain.
func clientProbes(client string) (all []situation) {
	for _, to := range []string{"node1", "node3", "balancer1", "external1"} {
		for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
			for _, f := range model.Families() {
				all = append(all, situation{service: "plain", to: to, from: client, protocol: protocol, family: f, most: 1})
			}
		}
	}
	return all
}

// insideProbes are those of pods and nodes: to a cluster IP with endpoints on two nodes, and to one whose endpoint is outside.
func insideProbes() (all []situation) {
	for _, from := range []string{"a", "b", "d", "node1", "node3"} {
		for _, service := range []string{"plain", "abroad"} {
			for _, f := range model.Families() {
				all = append(all, situation{service: service, to: "cluster", from: from, protocol: model.TCP, family: f, most: 1})
			}
		}
	}
	return all
}

func preDNAT(t *testing.T, c *serviceLab) {
	expect := func(when string, open bool, all []situation) {
		t.Helper()
		timeout := probeTimeout
		if open {
			timeout = patience
		}
		for s, got := range c.judgeAll(all, 1, timeout) {
			if open != strings.Contains(got, " sees ") || !open && got != wasSilent {
				t.Errorf("%s: %s: %s", when, s, got)
			}
		}
	}
	left := slices.Concat(clientProbes(outside), clientProbes(stranger), insideProbes())
	eventually.True(t, "all Services are served without a policy", func() bool { // each node and family begins on its own
		results := c.judgeAll(left, 1, probeTimeout)
		left = slices.DeleteFunc(left, func(s situation) bool { return strings.Contains(results[s], " sees ") })
		return len(left) == 0
	})
	var old []net.Conn
	for _, f := range model.Families() {
		ns, source := c.hostOf(t, stranger, f)
		to := c.target(situation{service: "plain", to: "node1", family: f})
		err := ns.Do(func() error {
			conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(source, 0)), net.UDPAddrFromAddrPort(to))
			if err == nil {
				old = append(old, conn)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	goesOn := func(when string) {
		t.Helper()
		for _, conn := range old {
			eventually.True(t, when+": "+conn.LocalAddr().String()+" goes on", func() bool {
				_, _ = conn.Write([]byte("who"))
				_ = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
				n, _ := conn.Read(make([]byte, 128))
				return n > 0
			})
		}
	}
	goesOn("without a policy")
	if err := os.WriteFile(filepath.Join(c.Manifests(), "prednat.yaml"), []byte(onlyOutside), 0o644); err != nil { // the lab would remove the Services
		t.Fatal(err)
	}
	if err := c.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	hostsConfirmed(t, c.Lab, "node1", "node2", "node3")
	goesOn("before DNAT")
	expect("before DNAT", false, clientProbes(stranger))
	expect("before DNAT", true, slices.Concat(clientProbes(outside), insideProbes()))
	// A pod reaches a pod of another node, and the outside, without a Service.
	for _, way := range [][2]string{{"a", "c"}, {"d", "a"}, {"a", stranger}} {
		for _, f := range model.Families() {
			from, source := c.hostOf(t, way[0], f)
			_, to := c.hostOf(t, way[1], f)
			if _, err := overTCP(from, source, netip.AddrPortFrom(to, endpointPort), patience); err != nil {
				t.Errorf("%v over IPv%s: %v", way, f, err)
			}
		}
	}
	node := c.Node("node1")
	noDifference(t, node)
	f := follow(t, node)
	for _, to := range []string{"node1", "balancer1", "external1"} {
		for _, family := range model.Families() {
			s := situation{service: "plain", to: to, from: stranger, protocol: model.TCP, family: family}
			at := c.target(s)
			eventually.True(t, "named: "+s.String(), func() bool {
				c.probe(s, probeTimeout/4)
				return slices.ContainsFunc(f.drops(), func(d control.Drop) bool {
					_, source := c.hostOf(t, stranger, family)
					return d.From.Address == source && d.To.Address == at.Addr() && d.Port == at.Port() && d.Direction == "ingress" &&
						d.By == control.ByRule && d.Policy == "clusternetworkpolicy.crd.antrea.io/pre" && d.Rule == "ingress[1]"
				})
			})
		}
	}
	f.end()
}

// tracePreDNAT: trace says what happens to the clients' packets, and by which rule.
func tracePreDNAT(t *testing.T, c *serviceLab) {
	for _, to := range []string{"node1", "balancer1"} {
		for _, f := range model.Families() {
			for client, verdict := range map[string]string{outside: "allowed", stranger: "denied"} {
				at := c.target(situation{service: "plain", to: to, family: f})
				out, errs, _ := felixctl(t, "trace", "--lab", c.Name(), "--node", "node1", "--from", ofFamily(f, netip.MustParseAddr(client)).String(), "--to", at.Addr().String(),
					"--port", fmt.Sprintf("%d/tcp", at.Port()), "-o", "json")
				var answers []traceAnswer
				if err := json.Unmarshal([]byte(out), &answers); err != nil || len(answers) == 0 {
					t.Errorf("%s to %s: %v: %s%s", client, at, err, out, errs)
				}
				for _, a := range answers {
					if a.Verdict != verdict || a.Disagreement != "" || verdict == "denied" && !strings.Contains(out, "clusternetworkpolicy.crd.antrea.io/pre ingress[1]") {
						t.Errorf("%s to %s: %s", client, at, out)
					}
				}
			}
		}
	}
}

// traceNodePort: with kube-proxy, trace knows that a NodePort is translated between the policies before DNAT and those at INPUT, if it is given the
// Service. If it is not, it says what it does not know.
func traceNodePort(t *testing.T, c *serviceLab) {
	const closed = `
{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: input}, spec: {priority: 1, appliedTo: [{nodeSelector: {}}],
  ingress: [{action: Drop, ports: [{port: 30000, endPort: 32767}]}]}}
`
	if err := os.WriteFile(filepath.Join(c.Manifests(), "input.yaml"), []byte(closed), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := c.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	hostsConfirmed(t, c.Lab, "node1")
	plain := comparedServices()[0].service()
	plain.Spec.Selector = map[string]string{"serves": plain.Name}
	for i := range plain.Spec.Ports {
		plain.Spec.Ports[i].TargetPort = intstr.FromInt32(endpointPort)
	}
	given := func(s *corev1.Service) []string {
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return []string{"--services", file(t, string(text))}
	}
	local, own := plain.DeepCopy(), plain.DeepCopy()
	own.Spec.Selector = map[string]string{"serves": "own"}
	local.Spec.Selector, local.Spec.ExternalTrafficPolicy = map[string]string{"serves": "elsewhere"}, corev1.ServiceExternalTrafficPolicyLocal
	for _, f := range model.Families() {
		s := situation{service: "plain", to: "node1", from: outside, protocol: model.TCP, family: f}
		if got := c.judge(s, 1, patience); !strings.Contains(got, " sees ") {
			t.Errorf("under a Drop at INPUT: %s: %s", s, got)
		}
		at := c.target(s)
		for _, test := range []struct {
			from, to, port string
			services       []string
			verdict, want  string
			answers        int
		}{
			{outside, at.Addr().String(), fmt.Sprint(at.Port()), given(plain), "allowed", "kube-proxy on node1 leads nodePort " + fmt.Sprint(at.Port()), 2},
			{stranger, at.Addr().String(), fmt.Sprint(at.Port()), given(plain), "denied", "clusternetworkpolicy.crd.antrea.io/pre ingress[1]", 1},
			{outside, at.Addr().String(), fmt.Sprint(at.Port()), given(local), "denied", "policy Local", 1},
			{outside, at.Addr().String(), fmt.Sprint(at.Port()), nil, "denied", "a NodePort of kube-proxy is translated before this", 1},
			{stranger, "service:x/plain", fmt.Sprint(servicePort), given(own), "allowed", "judge packets from outside before DNAT", 1},
		} {
			args := []string{"trace", "--lab", c.Name(), "--node", "node1", "--from", ofFamily(f, netip.MustParseAddr(test.from)).String(), "--to", test.to, "--family", f.String(), "--port", test.port + "/tcp", "-o", "json"}
			out, errs, _ := felixctl(t, append(args, test.services...)...)
			var answers []traceAnswer
			if err := json.Unmarshal([]byte(out), &answers); err != nil || len(answers) != test.answers || !strings.Contains(out, test.want) {
				t.Errorf("%v: %v: %d answers, want %d and %q: %s%s", args, err, len(answers), test.answers, test.want, out, errs)
			}
			for _, a := range answers {
				if a.Verdict != test.verdict || a.Disagreement != "" {
					t.Errorf("%v: %s, want %s: %s", args, a.Verdict, test.verdict, a.Disagreement)
				}
			}
		}
		_, errs, code := felixctl(t, append([]string{
			"trace", "--lab", c.Name(), "--node", "node1", "--from", ofFamily(f, netip.MustParseAddr(outside)).String(), "--to", "node:node3",
			"--family", f.String(), "--port", fmt.Sprintf("%d/tcp", at.Port()),
		}, given(plain)...)...)
		if code != 2 || !strings.Contains(errs, "node:node3 was not asked: trace there") {
			t.Errorf("to a node that is not asked: exit code %d: %s", code, errs)
		}
	}
}

// TestPreDNATTrafficModes: without a tunnel, pods of other nodes reach the pods of a node that denies everything before DNAT, and hosts outside do. What is
// for the node itself is judged by the pod's address. Nobody else passes with such an address.
func TestPreDNATTrafficModes(t *testing.T) {
	t.Parallel()
	for _, backend := range places() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			l := newLabWith(t, lab.Config{Backend: backend, TrafficMode: config.NoEncap})
			fabric, err := namespace.Open("flx-" + l.Name() + "-fabric")
			if err != nil {
				t.Fatal(err)
			}
			defer fabric.Close()
			set(t, l, state(t, twoSubnets))
			own := l.Node("node1")
			echoIn(t, own.Namespace(), "7778")
			for _, mode := range []string{config.NoEncap, config.Hybrid} {
				t.Run(mode, func(t *testing.T) {
					if mode != config.NoEncap {
						inMode(t, l, mode)
					}
					reaches := func(from string, to netip.AddrPort, f model.Family, timeout time.Duration) error {
						ns, source, err := l.Host(endOf(from), f)
						if err != nil {
							return err
						}
						conn, err := traffic.Connect(ns, source, to, timeout)
						if err == nil {
							err = conn.Close()
						}
						return err
					}
					judge := func(when string, pods bool) {
						t.Helper()
						for _, f := range model.Families() {
							for _, from := range []string{"a", "c", "node2", "node3"} {
								open := pods && !strings.HasPrefix(from, "node")
								timeout := probeTimeout
								if open {
									timeout = patience
								}
								if err := reaches(from, netip.AddrPortFrom(own.Address(f), 7778), f, timeout); (err == nil) != open {
									t.Errorf("%s: %s to node1 over IPv%s: %v", when, from, f, err)
								}
							}
						}
						for _, way := range [][2]string{{"c", "a"}, {"a", "c"}, {"a", "d"}, {"d", "b"}, {"c", "d"}} {
							expect(t, l, true, "x/"+way[0], "x/"+way[1], model.TCP, 80)
						}
						forgers(t, l, fabric)
					}
					set(t, l, state(t, twoSubnets, preDNATPolicy("{action: Drop}")))
					hostsConfirmed(t, l, "node1", "node2", "node3")
					judge("deny all", false)
					restartsUnder(t, l)
					set(t, l, state(t, twoSubnets, preDNATPolicy("{action: Allow, from: [{namespaceSelector: {}}]}, {action: Drop}")))
					hostsConfirmed(t, l, "node1", "node2", "node3")
					judge("allow pods", true)
					forgedToNode(t, l, fabric)
				})
			}
		})
	}
}

// restartsUnder starts the agent of node1 again while a pod of another node connects to a pod there: no packet is denied meanwhile.
func restartsUnder(t *testing.T, l *lab.Lab) {
	t.Helper()
	set(t, l, state(t, twoSubnets, preDNATPolicy("{action: Drop, from: [{namespaceSelector: {}}]}, {action: Drop}")))
	hostsConfirmed(t, l, "node1")
	done, ended := make(chan struct{}), make(chan int)
	go func() {
		count := 0
		for {
			select {
			case <-done:
				ended <- count
				return
			case <-time.After(20 * time.Millisecond):
			}
			for _, f := range model.Families() {
				if conn, err := traffic.Connect(l.Pod(pod("c")).Namespace(), netip.Addr{}, netip.AddrPortFrom(l.Pod(pod("a")).Address(f), 80), patience); err == nil {
					count++
					_ = conn.Close()
				}
			}
		}
	}()
	for range 3 {
		if err := l.RestartAgent(t.Context(), "node1"); err != nil {
			t.Error(err)
		}
	}
	close(done)
	if count := <-ended; count == 0 {
		t.Error("no connection")
	}
	found := false
	for line := range strings.Lines(shell(t, l.Node("node1"), "nft list table inet felixlike-hosts")) {
		if strings.Contains(line, "clusternetworkpolicy.crd.antrea.io/pre ingress[0]") {
			found = true
			if !strings.Contains(line, "counter packets 0 ") {
				t.Errorf("while the agent was started again: %s", line)
			}
		}
	}
	if !found {
		t.Error("the rule is not there")
	}
}

// forgedToNode has a host of the underlay send to node1 as a pod of node2. Then that pod sends.
func forgedToNode(t *testing.T, l *lab.Lab, fabric *namespace.Namespace) {
	t.Helper()
	third := net.HardwareAddr{2, 0, 0, 0, 0, 0x66}
	node, c := l.Node("node1"), l.Pod(pod("c"))
	out, to := openWire(t, fabric, "n-node1"), uplinkMAC(t, node)
	for _, f := range model.Families() {
		var server net.PacketConn
		if err := node.Namespace().Do(func() (err error) {
			server, err = net.ListenPacket("udp", netip.AddrPortFrom(node.Address(f), markerPort).String())
			return err
		}); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var got []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				text := make([]byte, 64)
				n, _, err := server.ReadFrom(text)
				if err != nil {
					return
				}
				mu.Lock()
				got = append(got, string(bytes.Clone(text[:n])))
				mu.Unlock()
			}
		}()
		kind, packet := udpPacket(c.Address(f), node.Address(f), markerPort, "forged")
		out.send(ethernet(third, to, kind, packet))
		eventually.True(t, "a pod's packet arrives", func() bool {
			_ = c.Namespace().Do(func() error {
				conn, err := net.Dial("udp", netip.AddrPortFrom(node.Address(f), markerPort).String())
				if err == nil {
					_, err = conn.Write([]byte("honest"))
					_ = conn.Close()
				}
				return err
			})
			mu.Lock()
			defer mu.Unlock()
			return slices.Contains(got, "honest")
		})
		_ = server.Close()
		<-done
		if slices.Contains(got, "forged") {
			t.Errorf("IPv%s: a forged packet arrived at the node", f)
		}
	}
}

// TestPreDNATPolicyOnly: behind another CNI plugin, pods and hosts outside reach the pods of a node that denies everything before DNAT, pods reach the outside,
// and neither reaches the node. A pod's address from outside does not help.
func TestPreDNATPolicyOnly(t *testing.T) {
	t.Parallel()
	for _, plugin := range []string{"bridge", "ptp"} {
		t.Run(plugin, func(t *testing.T) {
			t.Parallel()
			n := newChainedNode(t, plugin)
			n.apply(alone+preDNATPolicy("{action: Drop}"), "a", "b", "c", "d")
			n.start()
			n.untilAvailable()
			a, b, c := n.add("one", "a"), n.add("two", "b"), n.add("three", "c")
			eventually.True(t, "programmed", func() bool { return strings.Contains(n.nft("list", "ruleset"), "hosts-prerouting") })
			n.verdicts("before DNAT", a, b, c)
			n.outside(a, b)
			far, err := namespace.Open(fmt.Sprintf("flx-e2ecni-%s-far", uniqueName(t)))
			n.must(err)
			defer far.Close()
			here := []netip.Addr{netip.MustParseAddr("192.168.77.1"), netip.MustParseAddr("fd77::1")}
			there := []netip.Addr{netip.MustParseAddr("192.168.77.9"), netip.MustParseAddr("fd77::9")}
			for _, ns := range []*namespace.Namespace{n.ns, far} {
				serveOn(t, ns, ":7778", func(net.Conn) {})
			}
			for i, f := range model.Families() {
				for _, way := range []struct {
					name   string
					from   *namespace.Namespace
					source netip.Addr
					to     netip.Addr
					open   bool
				}{
					{"far to the node", far, there[i], here[i], false},
					{"a pod to its node", b.NS, b.addresses()[i], here[i], false},
					{"a pod to the outside", b.NS, b.addresses()[i], there[i], true},
					{"the node to the outside", n.ns, here[i], there[i], true},
				} {
					timeout := probeTimeout
					if way.open {
						timeout = patience
					}
					conn, err := traffic.Connect(way.from, way.source, netip.AddrPortFrom(way.to, 7778), timeout)
					if err == nil {
						_ = conn.Close()
					}
					if (err == nil) != way.open {
						t.Errorf("%s over IPv%s: %v", way.name, f, err)
					}
				}
			}
		})
	}
}

// TestPreDNATWays: under a policy that denies everything before DNAT on all nodes, pods come out of the cluster by their own node, by the node with their
// Egress, and by a switch that translates, and reach pods of other nodes, also encrypted.
func TestPreDNATWays(t *testing.T) {
	t.Parallel()
	away := strings.ReplaceAll(strings.NewReplacer("192.168.50.100", "192.168.50.200", "c0a8:3264", "c0a8:32c8").Replace(egresses), "node: node1", "node: node2")
	ways := map[string]lab.Config{
		"egress/nftables": {Backend: config.NFTables}, "egress/openflow": {Backend: config.OpenFlow},
		"snat": {Backend: config.OpenFlow, SNAT: config.OpenFlow, Datapath: ovsdb.DatapathNetdev}, "wireguard": {Backend: config.NFTables, Encryption: config.WireGuard},
	}
	for name, with := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := wireguard.Supported(); err != nil && with.Encryption != "" {
				t.Skip(err)
			}
			l := newLabWith(t, with)
			objects := []string{threeNodes, preDNATPolicy("{action: Drop}")}
			seen := map[model.Family]string{model.IPv4: "192.168.50.11", model.IPv6: "fd00:10::c0a8:320b"}
			if strings.HasPrefix(name, "egress") {
				objects = append(objects, away)
				seen = map[model.Family]string{model.IPv4: "192.168.50.200", model.IPv6: "fd00:10::c0a8:32c8"}
			}
			set(t, l, state(t, objects...))
			hostsConfirmed(t, l, "node1", "node2", "node3")
			for _, f := range model.Families() {
				h := newOutsideHost(t, l, "203.0.113.9", f)
				eventually.True(t, "pod a comes out over IPv"+f.String(), func() bool {
					_, by, err := h.connect(t, l.Pod(pod("a")).Namespace(), patience)
					return err == nil && by == seen[f]
				})
				ns, source, err := l.Host("ip:203.0.113.9", f)
				if err != nil {
					t.Fatal(err)
				}
				for _, port := range []uint16{7778, 10200} { // the second is one of those that the switch translates
					listenOn(t, l.Node("node1"), f, port)
					if conn, err := traffic.Connect(ns, source, netip.AddrPortFrom(l.Node("node1").Address(f), port), probeTimeout); err == nil {
						_ = conn.Close()
						t.Errorf("IPv%s: from outside to node1, port %d", f, port)
					}
				}
			}
			for _, way := range [][2]string{{"x/a", "x/c"}, {"x/c", "x/a"}, {"x/d", "x/b"}} {
				expect(t, l, true, way[0], way[1], model.TCP, 80)
			}
		})
	}
}

// listenOn listens on a port of a node until the test ends.
func listenOn(t *testing.T, n *lab.Node, f model.Family, port uint16) {
	t.Helper()
	if err := n.Namespace().Do(func() error {
		l, err := net.Listen("tcp", netip.AddrPortFrom(n.Address(f), port).String())
		if err == nil {
			t.Cleanup(func() { _ = l.Close() })
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
