package e2e

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

// newBridgedServices starts a lab whose agents serve Services, under openflow.
func newBridgedServices(t *testing.T) *lab.Lab {
	t.Helper()
	l := newLabWith(t, lab.Config{Backend: config.OpenFlow, ServiceProxy: config.ServiceProxyFull})
	set(t, l, state(t, threeNodes))
	expect(t, l, true, "x/b", "ip:"+stranger, model.TCP, 80)
	return l
}

// serveWith sets the policies, and the tested Services.
func serveWith(t *testing.T, l *lab.Lab, policies string) {
	t.Helper()
	set(t, l, state(t, threeNodes, policies))
	// The lab removes files that it does not know.
	if err := os.WriteFile(filepath.Join(l.Manifests(), "services.yaml"), []byte(serviceObjects(l)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := l.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// byTheHost returns the connections to a Service that a node's host has led.
func byTheHost(t *testing.T, n *lab.Node, s service) string {
	t.Helper()
	all := ""
	for _, f := range model.Families() {
		all += shell(t, n, fmt.Sprintf("conntrack -L -f ipv%s -d %s 2>/dev/null | grep src=", f, s.address(f)))
	}
	return all
}

// TestServicesInTheBridge: packets of pods to cluster IPs do not come to the host, wherever the endpoint is, but for those of a pod to itself. Policy judges
// them by the endpoint, also one outside the cluster.
func TestServicesInTheBridge(t *testing.T) {
	t.Parallel()
	l := newBridgedServices(t)
	serveWith(t, l, "")
	all := testedServices()
	for _, c := range []struct {
		way
		client  string
		service service
	}{
		{way{"b", "a", true}, "node1", all[0]},
		{way{"a", "c", true}, "node1", all[2]},
		{way{"a", "ext", true}, "node1", all[3]},
		{way{"d", "a", true}, "node3", all[0]},
	} {
		for _, f := range model.Families() {
			if err := c.try(l, f); err != nil {
				t.Errorf("%s -> %s over IPv%s: %v", c.from, c.to, f, err)
			}
		}
		if led := byTheHost(t, l.Node(c.client), c.service); led != "" {
			t.Errorf("%s -> %s: the host of %s has led\n%s", c.from, c.to, c.client, led)
		}
	}
	for _, f := range model.Families() {
		if err := (way{"a", "a", true}).try(l, f); err != nil {
			t.Errorf("a -> a over IPv%s: %v", f, err)
		}
	}
	if led := byTheHost(t, l.Node("node1"), all[0]); led == "" {
		t.Error("a -> a: the host has not led it")
	}
	cidrs := func(a netip.Addr) string {
		var blocks []string
		for _, f := range model.Families() {
			a := ofFamily(f, a)
			blocks = append(blocks, fmt.Sprintf(`{ipBlock: {cidr: "%s/%d"}}`, a, a.BitLen()))
		}
		return strings.Join(blocks, ", ")
	}
	const egress = `{kind: NetworkPolicy, metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], egress: [{to: [%s], ports: [{port: %d}]}]}}`
	for _, c := range []serviceCase{
		{"egress to the endpoint outside", fmt.Sprintf(egress, cidrs(netip.MustParseAddr(stranger)), 80), slices.Concat(open("a -> ext"), denied("a -> c", "a -> b"))},
		{"egress to another port of it", fmt.Sprintf(egress, cidrs(netip.MustParseAddr(stranger)), servicePort), denied("a -> ext")},
		{"egress to the address of the Service", fmt.Sprintf(egress, cidrs(all[3].address(model.IPv4))+", "+cidrs(all[2].address(model.IPv4)), servicePort), denied("a -> ext", "a -> c")},
	} {
		serveWith(t, l, c.policies)
		judgeWays(t, l, c)
	}
}

// TestServicesInTheBridgeGoOn restarts agents and Open vSwitch, and changes the backend there and back, with connections through Services of all kinds: they
// go on, and new ones get through.
func TestServicesInTheBridgeGoOn(t *testing.T) {
	t.Parallel()
	l := newBridgedServices(t)
	serveWith(t, l, "")
	node := l.Node("node1")
	ovs := supervise(t, node)
	if err := l.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	conns := map[string]*os.File{}
	check := func(when string) {
		t.Helper()
		for _, name := range slices.Sorted(maps.Keys(conns)) {
			if err := traffic.Echo(conns[name], patience); err != nil {
				t.Errorf("%s: %s: %v", when, name, err)
				delete(conns, name)
			}
		}
		for name, conn := range openWays(t, l) {
			conns[name+", begun "+when] = conn
		}
	}
	served := func() {
		t.Helper()
		eventually.True(t, "x/c reaches x/a", func() bool { return through(t, l) })
	}
	check("at the start")
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"after a restart of the agent", func() error { return l.RestartAgent(t.Context(), "node1") }},
		{"after the change to nftables", func() error { change(t, node, config.NFTables); return nil }},
		{"after the change back", func() error { change(t, node, config.OpenFlow); return nil }},
		{"after a restart of Open vSwitch", func() error { return errors.Join(ovs.End(syscall.SIGTERM), ovs.Start()) }},
		{"after the change to iptables", func() error { change(t, node, config.IPTablesNFT); return nil }},
		{"after the other change back", func() error { change(t, node, config.OpenFlow); return nil }},
		{"after a crash of Open vSwitch", func() error { return errors.Join(ovs.End(syscall.SIGKILL), ovs.Start()) }},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		served()
		check(step.name)
	}
	nothingLeft(t, node, config.OpenFlow)
	change(t, node, config.NFTables)
	nothingLeft(t, node, config.NFTables)
}

// manyObjects is a Service with three endpoints: a pod of node1, one of node2, and a server outside.
func manyObjects(l *lab.Lab) string {
	var b strings.Builder
	s := service{number: 9}
	fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: Service, metadata: {namespace: x, name: many}, spec: {clusterIPs: [%s, %q], ports: [{port: %d}]}}\n", s.address(model.IPv4), s.address(model.IPv6), servicePort)
	for _, f := range model.Families() {
		var endpoints []string
		for _, name := range []string{"a", "c"} {
			p := l.Pod(pod(name))
			endpoints = append(endpoints, fmt.Sprintf("{addresses: [%q], nodeName: %s}", p.Address(f), p.Node().Name()))
		}
		endpoints = append(endpoints, fmt.Sprintf("{addresses: [%q]}", ofFamily(f, netip.MustParseAddr(stranger))))
		fmt.Fprintf(&b, "---\n{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {namespace: x, name: many-%s, labels: {kubernetes.io/service-name: many}}, addressType: IPv%s, ports: [{port: 80}], endpoints: [%s]}\n",
			f, f, strings.Join(endpoints, ", "))
	}
	return b.String()
}

// TestBusyServicesGoOn changes the backend again and again, and at last who serves Services, while x/b opens connections to a Service with three endpoints
// and sends on others all the time: none is lost.
func TestBusyServicesGoOn(t *testing.T) {
	t.Parallel()
	l := newBridgedServices(t)
	if err := os.WriteFile(filepath.Join(l.Manifests(), "services.yaml"), []byte(manyObjects(l)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := l.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	node := l.Node("node1")
	var routes []traffic.Route
	for _, f := range model.Families() {
		r := traffic.Route{Name: fmt.Sprintf("x/b to the Service over IPv%s", f), From: l.Pod(pod("b")).Namespace(), To: netip.AddrPortFrom(service{number: 9}.address(f), servicePort)}
		eventually.True(t, r.Name, func() bool {
			conn, err := traffic.Connect(r.From, netip.Addr{}, r.To, patience)
			if err != nil {
				return false
			}
			return conn.Close() == nil
		})
		routes = append(routes, slices.Repeat([]traffic.Route{r}, 4)...)
	}
	tr := traffic.Start(t.Context(), traffic.Options{Streams: routes, Opened: routes})
	for range 4 {
		for _, to := range []string{config.NFTables, config.OpenFlow, config.IPTablesNFT, config.OpenFlow} {
			change(t, node, to)
		}
	}
	ended(t, tr)
	// Nobody serves Services after that: connections go on, and none opens.
	tr = traffic.Start(t.Context(), traffic.Options{Streams: routes})
	start := time.Now()
	eventually.True(t, "all streams", func() bool { return tr.EchoedSince(start) })
	node.Settings().ServiceProxy = config.ServiceProxyOff
	if err := l.RestartAgent(t.Context(), "node1"); err != nil {
		t.Fatal(err)
	}
	start = time.Now()
	eventually.True(t, "all streams, after serviceProxy: off", func() bool { return tr.EchoedSince(start) })
	ended(t, tr)
	bridge := "unix:" + filepath.Join(node.OVSDir(), lab.Bridge+".mgmt")
	if left := shell(t, node, "ovs-ofctl -O OpenFlow15 dump-groups "+bridge+" | grep group_id; ovs-ofctl -O OpenFlow15 dump-flows "+bridge+" | grep 65523"); left != "" {
		t.Errorf("left of Services in the bridge:\n%s", left)
	}
}

// ended stops traffic and fails the test for every fault.
func ended(t *testing.T, tr *traffic.Traffic) {
	t.Helper()
	sum, err := tr.Stop()
	t.Log(sum)
	if err != nil {
		t.Error(err)
	}
}

// TestRejectThroughServicesInTheBridge: a client gets its error at once, from the address that it has asked, where the endpoint's node rejects and where its own does.
func TestRejectThroughServicesInTheBridge(t *testing.T) {
	t.Parallel()
	l := newBridgedServices(t)
	serveWith(t, l, rejecting)
	for _, f := range model.Families() {
		tcpIsReset(t, l, f)
	}
}
