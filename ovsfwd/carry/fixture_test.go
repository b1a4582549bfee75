package carry

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/test/ovstest"
	"github.com/felixlike/felixlike/test/stopwatch"
)

// cluster is a node with the pods a, b and c on its bridge, and a machine
// outside, "world". Pod a may reach b and the world, the world b; nothing else is
// allowed, in both pipelines. The host redirects a Service and a node port to b,
// and hides pods behind its own address on the way out.
type cluster struct {
	*ovstest.Bridge
	t       *testing.T
	node    pipeline.Node
	pods    []*model.Attachment
	flows   *openflow.FlowTable
	carrier *Carrier
	// watch times what the test does, once there are datagrams.
	watch *stopwatch.Watch
}

// The addresses, by family.
const (
	podA4, podA6   = "10.10.0.2", "fd00:10:10::2"
	podB4, podB6   = "10.10.0.3", "fd00:10:10::3"
	podC4, podC6   = "10.10.0.4", "fd00:10:10::4"
	service4       = "10.96.0.10"
	service6       = "fd00:96::10"
	outside4       = "10.96.0.11" // a Service with the world as the endpoint
	outside6       = "fd00:96::11"
	three4         = "10.96.0.12" // a Service with two endpoints on b and one on the world
	three6         = "fd00:96::12"
	node4, node6   = "172.16.9.1", "fd00:172::1"
	world4, world6 = "172.16.9.2", "fd00:172::2"
	gateway4       = "10.10.0.1"
	gateway6       = "fd00:10:10::1"
	servicePort    = 80
	nodePort       = 30080
	backendPort    = 8080
	otherPort      = 8081
)

const rules4and6 = `
table inet test {
	chain service {
		type nat hook prerouting priority dstnat;
		meta l4proto { tcp, udp } ip daddr 10.96.0.10 th dport 80 dnat ip to 10.10.0.3:8080
		meta l4proto { tcp, udp } ip6 daddr fd00:96::10 th dport 80 dnat ip6 to [fd00:10:10::3]:8080
		meta l4proto { tcp, udp } ip daddr 10.96.0.11 th dport 80 dnat ip to 172.16.9.2:8080
		meta l4proto { tcp, udp } ip6 daddr fd00:96::11 th dport 80 dnat ip6 to [fd00:172::2]:8080
		ip daddr 10.96.0.12 tcp dport 80 dnat ip addr . port to numgen random mod 3 map { 0 : 10.10.0.3 . 8080, 1 : 10.10.0.3 . 8081, 2 : 172.16.9.2 . 8080 }
		ip6 daddr fd00:96::12 tcp dport 80 dnat ip6 addr . port to numgen random mod 3 map { 0 : fd00:10:10::3 . 8080, 1 : fd00:10:10::3 . 8081, 2 : fd00:172::2 . 8080 }
		tcp dport 30080 ip daddr 172.16.9.1 dnat ip to 10.10.0.3:8080
		tcp dport 30080 ip6 daddr fd00:172::1 dnat ip6 to [fd00:10:10::3]:8080
	}
	chain hide {
		type nat hook postrouting priority srcnat;
		oifname "up0" masquerade
	}
}
# The kernel sees what Open vSwitch reads from pods' interfaces too, as without the agent's own table.
table inet bypass {
	chain prerouting {
		type filter hook prerouting priority raw;
		iifname "pod-*" drop
	}
}
table inet judge {
	chain forward {
		type filter hook forward priority 0;
		ct state established,related ct mark and 0x20000000 == 0x20000000 accept
		ct state invalid drop
		ip saddr 10.10.0.2 ip daddr { 10.10.0.3, 172.16.9.2 } jump let
		ip6 saddr fd00:10:10::2 ip6 daddr { fd00:10:10::3, fd00:172::2 } jump let
		iifname "up0" ip daddr 10.10.0.3 jump let
		iifname "up0" ip6 daddr fd00:10:10::3 jump let
		drop
	}
	chain let {
		ct direction original ct mark set ct mark or 0x20000000
		accept
	}
}
`

func newCluster(t *testing.T) *cluster {
	t.Helper()
	requireTools(t)
	c := &cluster{Bridge: ovstest.NewBridge(t), t: t}
	c.node = pipeline.Node{
		GatewayPort: ovsdb.GatewayOFPort, TunnelPort: ovsdb.TunnelOFPort, GatewayMAC: c.Config.GatewayMAC,
		Gateways: addrs(gateway4, gateway6), Userspace: true,
		PodCIDRs:      []netip.Prefix{netip.MustParsePrefix("10.10.0.0/24"), netip.MustParsePrefix("fd00:10:10::/64")},
		ServiceCIDRs:  []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00:96::/64")},
		HostAddresses: addrs(node4, node6),
	}
	c.host()
	for i, a := range [][]netip.Addr{addrs(podA4, podA6), addrs(podB4, podB6), addrs(podC4, podC6)} {
		c.addPod(string(rune('a'+i)), a)
	}
	conn, err := openflow.Dial(c.Context(), c.Management())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c.flows = openflow.NewFlowTable(pipeline.Owner, pipeline.Version)
	c.flows.Connect(conn)
	c.carrier = New(Options{Node: "n1", RunDir: c.Daemons.Dir(), Socket: c.Management(), DatapathType: "netdev"})
	c.carrier.OnUpdate(model.NodeUpdate{Node: &model.Node{Name: "n1", Addresses: addrs(node4), PodCIDRs: c.node.PodCIDRs}})
	return c
}

// requireTools skips the test where it cannot run.
func requireTools(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	for _, tool := range []string{"nft", "conntrack", "ethtool"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

func addrs(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, t := range texts {
		all = append(all, netip.MustParseAddr(t))
	}
	return all
}

// namespace makes a network namespace for an end of connections.
func (c *cluster) namespace(name string) string {
	ns := fmt.Sprintf("flx-carry-%s-%d", name, os.Getpid())
	c.Run("ip", "netns", "add", ns)
	c.t.Cleanup(func() { c.Run("ip", "netns", "del", ns) })
	c.ip(ns, "link set lo up")
	return ns
}

func (c *cluster) ns(name string) string {
	if name == "node" {
		return c.NS
	}
	return fmt.Sprintf("flx-carry-%s-%d", name, os.Getpid())
}

func (c *cluster) ip(ns, command string) {
	c.t.Helper()
	c.Run("ip", append([]string{"-n", ns}, strings.Fields(command)...)...)
}

func (c *cluster) in(ns string, args ...string) string {
	c.t.Helper()
	return c.Run("ip", append([]string{"netns", "exec", ns}, args...)...)
}

// host sets the node up: gateway port, uplink with the world behind it, rules.
func (c *cluster) host() {
	for _, s := range []string{
		"ipv4.ip_forward=1", "ipv6.conf.all.forwarding=1", "ipv4.conf.all.rp_filter=0", "ipv4.conf.flx-gw0.rp_filter=0",
		"ipv4.conf.all.send_redirects=0", "ipv4.conf.flx-gw0.send_redirects=0",
	} {
		c.in(c.NS, "sysctl", "-qw", "net."+s)
	}
	c.ip(c.NS, "link set lo up")
	c.ip(c.NS, "link set flx-gw0 up")
	c.in(c.NS, "ethtool", "-K", "flx-gw0", "tx", "off")
	c.ip(c.NS, "addr add "+gateway4+"/24 dev flx-gw0")
	c.ip(c.NS, "addr add "+gateway6+"/64 dev flx-gw0 nodad")
	world := c.namespace("world")
	c.ip(c.NS, "link add up0 type veth peer name eth0 netns "+world)
	for ns, ends := range map[string][]string{c.NS: {"up0", node4, node6}, world: {"eth0", world4, world6}} {
		c.ip(ns, "link set "+ends[0]+" up")
		c.ip(ns, "addr add "+ends[1]+"/24 dev "+ends[0])
		c.ip(ns, "addr add "+ends[2]+"/64 dev "+ends[0]+" nodad")
	}
	c.ip(world, "route add 10.10.0.0/24 via "+node4)
	c.ip(world, "route add fd00:10:10::/64 via "+node6)
	c.nft(rules4and6)
}

func (c *cluster) nft(rules string) {
	c.t.Helper()
	f := c.t.TempDir() + "/rules"
	if err := os.WriteFile(f, []byte(rules), 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.in(c.NS, "nft", "-f", f)
}

func (c *cluster) addPod(name string, addresses []netip.Addr) {
	c.t.Helper()
	ns := c.namespace(name)
	port := "pod-" + name
	c.ip(c.NS, "link add "+port+" type veth peer name eth0 netns "+ns)
	c.in(c.NS, "sysctl", "-qw", "net.ipv4.conf."+port+".arp_ignore=8", "net.ipv6.conf."+port+".disable_ipv6=1")
	c.ip(c.NS, "link set "+port+" up")
	c.ip(ns, "link set eth0 mtu 1450 up")
	c.in(ns, "ethtool", "-K", "eth0", "tx", "off")
	c.ip(ns, "addr add "+addresses[0].String()+"/24 dev eth0")
	c.ip(ns, "addr add "+addresses[1].String()+"/64 dev eth0 nodad")
	c.ip(ns, "route add default via "+gateway4)
	c.ip(ns, "route add default via "+gateway6)
	a := &model.Attachment{Pod: model.PodID{Namespace: "x", Name: name}, Interface: port, Addresses: addresses}
	inNamespace(c.t, ns, func() {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			c.t.Fatal(err)
		}
		a.MAC = link.Attrs().HardwareAddr
	})
	for _, address := range addresses {
		c.ip(c.NS, fmt.Sprintf("neighbour replace %s lladdr %s dev flx-gw0 nud permanent", address, a.MAC)) // as the agent does
	}
	var err error
	if a.OFPort, err = c.DB.AttachPort(c.Context(), *a); err != nil {
		c.t.Fatal(err)
	}
	c.pods = append(c.pods, a)
}

// steer has packets judged by netfilter (Steer), in the switch (Full), or by whoever knows their connections.
func (c *cluster) steer(m pipeline.Mode) {
	c.t.Helper()
	c.node.Mode = m
	node := c.node
	c.flows.SetFlows("base", func() []openflow.Flow { return pipeline.Base(node) })
	c.flows.SetFlows("judged", pipeline.Judged)
	for _, pod := range c.pods {
		c.flows.SetFlows("pod "+pod.Pod.String(), func() []openflow.Flow { return pipeline.Endpoint(node, pod) })
	}
	c.flows.SetFlows("services", func() []openflow.Flow { return c.serviceFlows() })
	if m != pipeline.Steer {
		c.Ofctl("add-flows", c.policyFlows())
	}
	if _, err := c.flows.Apply(c.Context()); err != nil {
		c.t.Fatal(err)
	}
}

// serviceFlows are those by which the bridge leads to the Services, if it does.
func (c *cluster) serviceFlows() (flows []openflow.Flow) {
	if !c.node.Services || c.node.Mode != pipeline.Full {
		return nil
	}
	for _, at := range [][3]string{{three4, podB4, world4}, {three6, podB6, world6}} {
		b, world := netip.MustParseAddr(at[1]), netip.MustParseAddr(at[2])
		flows = append(flows, pipeline.Service(c.node, pipeline.ServiceFrontend{
			Address: netip.AddrPortFrom(netip.MustParseAddr(at[0]), servicePort), Protocol: model.TCP,
			Endpoints: []netip.AddrPort{netip.AddrPortFrom(b, backendPort), netip.AddrPortFrom(b, otherPort), netip.AddrPortFrom(world, backendPort)},
		})...)
	}
	for _, at := range [][2]string{{service4, podB4}, {service6, podB6}, {outside4, world4}, {outside6, world6}} {
		for _, p := range []model.Protocol{model.TCP, model.UDP} {
			flows = append(flows, pipeline.Service(c.node, pipeline.ServiceFrontend{
				Address: netip.AddrPortFrom(netip.MustParseAddr(at[0]), servicePort), Protocol: p,
				Endpoints: []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr(at[1]), backendPort)},
			})...)
		}
	}
	return flows
}

// policyFlows writes the flows of the policy to a file: egress by source address
// in table 60, ingress by port in table 100, where only a and the world may
// reach b.
func (c *cluster) policyFlows() string {
	c.t.Helper()
	var b strings.Builder
	for ip, pod := range map[string][3]string{"nw": {podA4, podB4, podC4}, "ipv6": {podA6, podB6, podC6}} {
		family := map[string]string{"nw": "ip", "ipv6": "ipv6"}[ip]
		for _, isolated := range pod[1:] {
			fmt.Fprintf(&b, "cookie=0xf11d000000000000,table=60,priority=200,%s,%s_src=%s actions=drop\n", family, ip, isolated)
		}
		fmt.Fprintf(&b, "cookie=0xf11d000000000000,table=100,priority=200,%s,reg1=%d actions=drop\n", family, c.pods[0].OFPort)
		fmt.Fprintf(&b, "cookie=0xf11d000000000000,table=100,priority=200,%s,reg1=%d actions=drop\n", family, c.pods[2].OFPort)
	}
	f := c.t.TempDir() + "/policy"
	if err := os.WriteFile(f, []byte(b.String()), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return f
}

// toSwitch leads packets and connections to the switch, as a change of the backend does; toKernel leads them back.
func (c *cluster) toSwitch() {
	c.t.Helper()
	c.carry(c.carrier.ToSwitchAhead)
	for _, m := range []pipeline.Mode{pipeline.BeginsInHost, pipeline.BeginsInSwitch} {
		c.steer(m)
		c.settle()
	}
	c.carry(c.carrier.ToSwitch)
	c.steer(pipeline.Full)
	c.settle()
	c.carry(c.carrier.ToSwitch)
	inNamespace(c.t, c.NS, func() {
		if _, err := c.carrier.ForgetInKernel(c.Context()); err != nil {
			c.t.Error(err)
		}
	})
	for _, line := range c.conntrackEntries("-m", "536870912", "-s", podA4, "-d", podB4, "-w", "0") {
		c.t.Errorf("still marked: %s", line)
	}
}

func (c *cluster) toKernel() {
	c.t.Helper()
	c.carry(c.carrier.ToKernel)
	for _, m := range []pipeline.Mode{pipeline.BeginsInSwitch, pipeline.BeginsInHost} {
		c.steer(m)
		c.settle()
	}
	if c.node.Services {
		c.change(pipeline.CloseServices)
		c.settle()
	}
	c.carry(c.carrier.ToKernelBehind)
	c.steer(pipeline.Steer)
	c.change(pipeline.OpenServices)
	c.settle()
	c.carry(c.carrier.ToKernelBehind)
}

// leaveServices has the host lead to Services, while the switch judges.
func (c *cluster) leaveServices() {
	c.t.Helper()
	c.change(pipeline.CloseServices)
	c.settle()
	inNamespace(c.t, c.NS, func() {
		if err := c.carrier.LeaveServices(c.Context()); err != nil {
			c.t.Error(err)
		}
	})
	c.node.Services = false
	c.steer(pipeline.Full)
	c.change(pipeline.OpenServices)
}

// change makes changes of a bridge that leads to Services, or may have done so.
func (c *cluster) change(changes func(pipeline.Node) []openflow.FlowMod) {
	c.t.Helper()
	conn, err := openflow.Dial(c.Context(), c.Management())
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.Bundle(c.Context(), func(yield func(openflow.FlowMod, error) bool) {
		for _, m := range changes(c.node) {
			if !yield(m, nil) {
				return
			}
		}
	}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) settle() {
	c.t.Helper()
	if err := c.carrier.client.WaitRevalidators(c.Context(), nil); err != nil {
		c.t.Fatal(err)
	}
}

// conntrackEntries returns the kernel's entries as conntrack(8) prints them, those of one
// port number only.
func (c *cluster) conntrackEntries(args ...string) []string {
	c.t.Helper()
	var lines []string
	for line := range strings.Lines(c.in(c.NS, append([]string{"conntrack", "-L"}, args...)...)) {
		if strings.Contains(line, "src=") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func port(n int) string { return strconv.Itoa(n) }

// inNamespace calls f on a thread in a network namespace.
func inNamespace(t *testing.T, name string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Not unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		ns, err := netns.GetFromName(name)
		if err != nil {
			t.Errorf("namespace %s: %v", name, err)
			return
		}
		defer func() { _ = ns.Close() }()
		if err := netns.Set(ns); err != nil {
			t.Errorf("enter namespace %s: %v", name, err)
			return
		}
		f()
	}()
	<-done
}
