package multitenant

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/felixlike/felixlike/internal/ethtool"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
	"github.com/felixlike/felixlike/test/lab/probe"
	"github.com/felixlike/felixlike/test/ovstest"
)

// podPort is the port of all pods, servicePort that of all Services.
const podPort, servicePort = 8080, 80

// station is a pod or a node of the lab.
type station struct {
	*probe.Station
	name    string
	address netip.Addr
	// host is the number of its node, from 0.
	host int
	// pod is its index in the world of the node, -1 for the node itself.
	pod int
}

// lab is two nodes with real switches, and pods of four projects on each: "own" and "joined" have one number.
type lab struct {
	t        *testing.T
	bridges  [2]*ovstest.Bridge
	worlds   [2]world
	tables   [2]*openflow.FlowTable
	stations []station
}

var projects = []string{"own", "joined", "global", "other"}

func tenants() map[string]Tenant {
	return map[string]Tenant{"own": {Number: 7}, "joined": {Number: 7}, "global": {Global: true}, "other": {Number: 9}}
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, bridges: [2]*ovstest.Bridge{ovstest.NewBridge(t), ovstest.NewBridge(t)}}
	nodes := []*model.Node{nodeOf("node1", "192.168.77.1", "10.131.0.0/23"), nodeOf("node2", "192.168.77.2", "10.128.2.0/23")}
	a, b := l.bridges[0], l.bridges[1]
	a.Run("ip", "-n", a.NS, "link", "add", "up0", "type", "veth", "peer", "name", "up0", "netns", b.NS)
	for i := range nodes {
		l.startNode(i, nodes)
	}
	for i := range nodes {
		l.awaitTunnel(i, nodes)
		l.apply(i)
	}
	return l
}

// startNode gives a node its uplink, its host with the routes X02 and X03 of the reference, and its pods.
func (l *lab) startNode(i int, nodes []*model.Node) {
	l.t.Helper()
	b, w := l.bridges[i], &l.worlds[i]
	*w = world{node: own(nodes[i]), peers: []*model.Node{nodes[1-i]}}
	run := func(script string) { b.Run("ip", "netns", "exec", b.NS, "sh", "-ec", script) }
	cfg := b.Config
	cfg.TunnelType, cfg.LocalIP, cfg.NodeName, cfg.GatewayMAC = "vxlan", w.node.Addresses[0], nodes[i].Name, ovsdb.GatewayMAC(nodes[i].Name)
	// Only the gateway port answers for the gateway's address: by the other end of a pod's interface, packets would go past the switch.
	run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1 net.ipv4.ip_forward=1 net.ipv4.conf.all.arp_ignore=1; ip link set lo up; ip link set up0 up")
	underlay := "up0"
	if b.Userspace() {
		cfg.Uplink, cfg.UplinkMAC, underlay = "up0", ovsdb.GatewayMAC("uplink of "+nodes[i].Name), ovsdb.PhysicalBridge
	}
	db, err := ovsdb.Open(b.Context(), cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(db.Close)
	if err := db.EnsureBridge(b.Context()); err != nil {
		l.t.Fatal(err)
	}
	run(fmt.Sprintf(`ip addr add %s/24 dev %s; ip link set %[2]s up; ip addr add %s/23 dev flx-gw0; ip link set flx-gw0 up
		ip route add %s dev flx-gw0 scope link; ip route add %s dev flx-gw0 scope link`,
		w.node.Addresses[0], underlay, w.node.Gateway, w.node.ClusterPrefix, w.node.ServicePrefixes[0]))
	l.station(station{name: "node" + fmt.Sprint(i+1), address: w.node.Gateway, host: i, pod: -1}, b.NS)
	for p, project := range projects {
		l.startPod(i, p, project, db)
	}
	l.translate(i)
}

func (l *lab) startPod(i, p int, project string, db *ovsdb.Client) {
	l.t.Helper()
	b, w := l.bridges[i], &l.worlds[i]
	address := w.node.Gateway
	for range 10 + p {
		address = address.Next()
	}
	pod := podOf(tenants()[project], 0, address.String())
	pod.Interface, pod.Pod = fmt.Sprintf("v%d", p), model.PodID{Namespace: project, Name: "pod"}
	ns := fmt.Sprintf("%s-%d", b.NS, p)
	b.Run("ip", "netns", "add", ns)
	l.t.Cleanup(func() { b.Run("ip", "netns", "del", ns) })
	b.Run("ip", "-n", b.NS, "link", "add", pod.Interface, "up", "type", "veth", "peer", "name", "eth0", "address", pod.MAC.String(), "mtu", "1400", "netns", ns)
	b.Run("ip", "netns", "exec", ns, "sh", "-ec", fmt.Sprintf(
		"ip link set lo up; ip link set eth0 up; ip addr add %s/32 dev eth0; ip route add %s dev eth0 scope link; ip route add default via %s dev eth0",
		address, w.node.ClusterPrefix, w.node.Gateway))
	var err error
	if pod.OFPort, err = db.AttachPort(b.Context(), *pod.Attachment); err != nil {
		l.t.Fatal(err)
	}
	w.pods = append(w.pods, pod)
	l.station(station{name: fmt.Sprintf("%s on node%d", project, i+1), address: address, host: i, pod: p}, ns)
}

// station adds a station that serves TCP and UDP.
func (l *lab) station(s station, ns string) {
	l.t.Helper()
	opened, err := namespace.Open(ns)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(opened.Close)
	s.Station = probe.NewStation(opened)
	l.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			l.t.Error(err)
		}
	})
	if s.pod >= 0 {
		if err := opened.Do(func() error { return ethtool.Set("eth0", ethtool.TxChecksum, !l.bridges[0].Userspace()) }); err != nil {
			l.t.Fatal(err)
		}
	}
	at := netip.AddrPortFrom(s.address, podPort)
	if err := errors.Join(s.Serve(model.TCP, at), s.Serve(model.UDP, at)); err != nil {
		l.t.Fatal(err)
	}
	l.stations = append(l.stations, s)
}

// service is the address of the Service of a project whose endpoint is on a node. Both nodes know it.
func service(host, project int) netip.Addr {
	return netip.AddrFrom4([4]byte{172, 30, byte(host), byte(10 + project)})
}

// translate has the host of a node do what a kube-proxy does with the Services of all pods, with X10 of the reference.
func (l *lab) translate(i int) {
	l.t.Helper()
	rules, w := "", &l.worlds[i]
	for host, prefix := range []string{"10.131.0", "10.128.2"} {
		for p, project := range projects {
			rules += fmt.Sprintf("ip daddr %s meta l4proto { tcp, udp } th dport %d dnat to %s.%d:%d\n", service(host, p), servicePort, prefix, 11+p, podPort)
			w.services = append(w.services, tenantService{tenants()[project], Service{service(host, p), []ServicePort{{model.TCP, servicePort}, {model.UDP, servicePort}}}})
		}
	}
	b := l.bridges[i]
	b.Run("ip", "netns", "exec", b.NS, "nft", fmt.Sprintf(`table ip services {
		chain prerouting { type nat hook prerouting priority -100; %[1]s }
		chain output { type nat hook output priority -100; %[1]s }
		chain postrouting { type nat hook postrouting priority srcnat; ip saddr %[2]s masquerade; }
	}`, "\n"+rules, w.node.ClusterPrefix))
}

func (l *lab) awaitTunnel(i int, nodes []*model.Node) {
	l.t.Helper()
	b := l.bridges[i]
	if !b.Userspace() {
		return
	}
	ovstest.Poll(l.t, func() error {
		ports := b.Run("ovs-appctl", "-t", b.Daemons.VSwitchdControl(), "tnl/ports/show")
		routes := b.Run("ovs-appctl", "-t", b.Daemons.VSwitchdControl(), "ovs/route/show")
		if !strings.Contains(ports, "vxlan_sys_4789") || !strings.Contains(routes, nodes[i].Addresses[0].String()) {
			return fmt.Errorf("tunnel is not open: %s%s", ports, routes)
		}
		return nil
	})
	b.Run("ovs-appctl", "-t", b.Daemons.VSwitchdControl(), "tnl/neigh/set", ovsdb.PhysicalBridge, nodes[1-i].Addresses[0].String(), ovsdb.GatewayMAC("uplink of "+nodes[1-i].Name).String())
}

// apply brings the flows of a node into force, over one connection, as an agent does after a change of its objects.
func (l *lab) apply(i int) {
	l.t.Helper()
	b := l.bridges[i]
	conn, err := openflow.Dial(b.Context(), b.Management())
	if err != nil {
		l.t.Fatal(err)
	}
	defer conn.Close()
	if l.tables[i] == nil {
		l.tables[i] = openflow.NewFlowTable(owner, 1)
	}
	l.tables[i].Connect(conn)
	l.worlds[i].global = nil
	for _, p := range l.worlds[1-i].pods {
		if p.Global {
			l.worlds[i].global = append(l.worlds[i].global, p.Addresses[0])
		}
	}
	flows := l.worlds[i].flows()
	l.tables[i].SetFlows("all", func() []openflow.Flow { return flows })
	if _, err := l.tables[i].Apply(b.Context()); err != nil {
		l.t.Fatal(err)
	}
	if err := vswitchd.New(b.Daemons.Dir(), b.Config.DatapathType).WaitRevalidators(b.Context(), pipeline.Touch(conn)); err != nil {
		l.t.Fatal(err)
	}
}

// move gives a project another tenant on both nodes.
func (l *lab) move(project string, to Tenant) {
	l.t.Helper()
	for i := range l.worlds {
		for p := range l.worlds[i].pods {
			if l.worlds[i].pods[p].Pod.Namespace == project {
				l.worlds[i].pods[p].Tenant = to
			}
		}
		for s := range l.worlds[i].services {
			if projects[s%len(projects)] == project {
				l.worlds[i].services[s].Tenant = to
			}
		}
	}
	for i := range l.worlds {
		l.apply(i)
	}
}

// reach reports whether packets pass between two tenants.
func reach(a, b Tenant) bool { return a.known() && b.known() && (a.Global || b.Global || a == b) }

// matrix checks TCP and UDP from every pod and node to every other one, and to the Services of all pods.
func (l *lab) matrix() {
	l.t.Helper()
	var flows []probe.Flow
	var wanted []bool
	var names []string
	tenant := func(s station) Tenant {
		if s.pod < 0 {
			return Tenant{Global: true}
		}
		return l.worlds[s.host].pods[s.pod].Tenant
	}
	add := func(from station, name string, to netip.AddrPort, want bool) {
		for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
			flows = append(flows, probe.Flow{From: from.Station, Source: from.address, Target: to, Protocol: protocol})
			wanted, names = append(wanted, want), append(names, fmt.Sprintf("%s, %s -> %s", protocol, from.name, name))
		}
	}
	for _, from := range l.stations {
		for _, to := range l.stations {
			if from == to {
				continue
			}
			add(from, to.name, netip.AddrPortFrom(to.address, podPort), reach(tenant(from), tenant(to)))
			if to.pod >= 0 {
				add(from, "Service of "+to.name, netip.AddrPortFrom(service(to.host, to.pod), servicePort), reach(tenant(from), tenant(to)))
			}
		}
	}
	denied, late := 0, 0
	for i, got := range probe.Run(l.t.Context(), flows, probe.Options{Timeout: 2 * time.Second}) {
		if !wanted[i] {
			denied++
		} else if got.Reason == probe.NoAnswer {
			// A busy machine may be late, a flow that drops is not.
			got = probe.Run(l.t.Context(), flows[i:i+1], probe.Options{Timeout: 20 * time.Second})[0]
			late++
		}
		if got.Err != nil || got.Through != wanted[i] || !wanted[i] && got.Reason != probe.NoAnswer {
			l.t.Errorf("%s: %+v, want through %t", names[i], got, wanted[i])
		}
	}
	l.t.Logf("%d probes, %d of them denied, %d answered when they were tried for longer", len(flows), denied, late)
}

// neighbours returns the addresses of pods whose MAC address a pod has learned.
func (l *lab) neighbours(s station) map[string]bool {
	known := map[string]bool{}
	for line := range strings.Lines(l.bridges[s.host].Run("ip", "-n", s.Namespace().Name(), "neigh", "show")) {
		if strings.Contains(line, "lladdr") {
			known[strings.Fields(line)[0]] = true
		}
	}
	return known
}

// TestPackets: pods reach pods of their tenant and of global ones, on their node and on the other one, directly and through Services;
// nodes reach all pods, and all pods reach nodes. Joining and isolating changes that at once.
func TestPackets(t *testing.T) {
	l := newLab(t)
	t.Run("isolated", func(t *testing.T) { l.with(t).matrix() })
	t.Run("no ARP between tenants", func(t *testing.T) {
		for _, from := range l.stations {
			known := l.neighbours(from)
			for _, to := range l.stations {
				if from.pod < 0 || to.pod < 0 || from == to {
					continue
				}
				want := reach(l.worlds[from.host].pods[from.pod].Tenant, l.worlds[to.host].pods[to.pod].Tenant)
				if known[to.address.String()] != want {
					t.Errorf("%s knows the MAC address of %s: %t, want %t", from.name, to.name, !want, want)
				}
			}
		}
	})
	// From now on all pods know all MAC addresses, so that IP packets come to the switch, too.
	for _, from := range l.stations {
		for _, to := range l.stations {
			if from.pod >= 0 && to.pod >= 0 && from != to {
				l.bridges[from.host].Run("ip", "-n", from.Namespace().Name(), "neigh", "replace", to.address.String(),
					"lladdr", l.worlds[to.host].pods[to.pod].MAC.String(), "dev", "eth0", "nud", "permanent")
			}
		}
	}
	t.Run("isolated, with known MAC addresses", func(t *testing.T) { l.with(t).matrix() })
	// There is no connection tracking: an old connection has packets while a new one would have them.
	inOwn := l.stream(l.named("own on node1"), l.named("own on node2"))
	toJoined := l.stream(l.named("own on node1"), l.named("joined on node2"))
	for _, step := range []struct {
		name, project string
		to            Tenant
		// own and joined say which of two old connections of a pod of "own" have packets: that to its project, or to "joined".
		own, joined bool
	}{
		{"joined", "other", Tenant{Number: 7}, true, true},
		{"isolated again", "other", Tenant{Number: 9}, true, true},
		{"no longer joined", "joined", Tenant{Number: 8}, true, false},
		{"joined once more", "joined", Tenant{Number: 7}, true, true},
		{"global", "other", Tenant{Global: true}, true, true},
		{"not known", "own", Tenant{}, false, false},
	} {
		t.Run(step.name, func(t *testing.T) {
			l := l.with(t)
			l.move(step.project, step.to)
			inOwn.write(t)
			toJoined.write(t)
			l.matrix() // meanwhile, what was written would have come
			inOwn.check(t, "own", step.own)
			toJoined.check(t, "joined", step.joined)
		})
	}
}

// stream is a TCP connection between two pods, whose server counts what it receives.
type stream struct {
	net.Conn
	received, written atomic.Int64
}

func (l *lab) stream(from, to station) *stream {
	l.t.Helper()
	s := &stream{}
	var listener net.Listener
	if err := to.Namespace().Do(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(l.t.Context(), "tcp4", netip.AddrPortFrom(to.address, 0).String())
		return err
	}); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { listener.Close() })
	go func() {
		conn, err := listener.Accept()
		for b := make([]byte, 1); err == nil; {
			if _, err = conn.Read(b); err == nil {
				s.received.Add(1)
			}
		}
	}()
	if err := from.Namespace().Do(func() (err error) {
		s.Conn, err = (&net.Dialer{Timeout: 10 * time.Second}).DialContext(l.t.Context(), "tcp4", listener.Addr().String())
		return err
	}); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { s.Close() })
	return s
}

// write sends a byte.
func (s *stream) write(t *testing.T) {
	t.Helper()
	if _, err := s.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	s.written.Add(1)
}

// check wants all written bytes to have come, or the last one not.
func (s *stream) check(t *testing.T, name string, passes bool) {
	t.Helper()
	if passes {
		ovstest.Poll(t, func() error {
			if got, want := s.received.Load(), s.written.Load(); got != want {
				return fmt.Errorf("the connection to %s: %d bytes of %d came", name, got, want)
			}
			return nil
		})
	} else if s.received.Load() == s.written.Load() {
		t.Errorf("the connection to %s: a byte came", name)
	}
}

// named returns the station of that name.
func (l *lab) named(name string) station {
	l.t.Helper()
	i := slices.IndexFunc(l.stations, func(s station) bool { return s.name == name })
	if i < 0 {
		l.t.Fatalf("no station %q", name)
	}
	return l.stations[i]
}

// with returns the lab for a part of its test.
func (l *lab) with(t *testing.T) *lab {
	part := *l
	part.t = t
	return &part
}
