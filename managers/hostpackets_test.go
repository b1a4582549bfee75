package managers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/denied"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/nftables"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/tablestest"
)

// hostPath is a path with a node as its router. The link to the receiver replaces the
// gateway port, and the receiver's addresses are those of pods.
type hostPath struct {
	*tablestest.Path
	table   *nftables.Table
	manager *HostManager
}

// family is one of the two, with the addresses that the tests use.
type family struct {
	model.Family
	pods, services, hairpin string
	pod, other, isolated    string
	client, nodeOut, nodeIn string
	service, unused, leads  string
}

func families() []family {
	return []family{
		{
			Family: model.IPv4, pods: "10.2.0.0/16", services: "10.96.0.0/12", hairpin: "169.254.20.20",
			pod: "10.2.0.5", other: "10.2.0.6", isolated: "10.2.0.7", client: "10.1.0.9", nodeOut: "192.168.1.1", nodeIn: "192.168.2.1",
			service: "10.96.0.10", unused: "10.96.0.99", leads: "10.96.0.11",
		},
		{
			Family: model.IPv6, pods: "fd02::/64", services: "fd96::/112", hairpin: "fd00:20::20",
			pod: "fd02::5", other: "fd02::6", isolated: "fd02::7", client: "fd01::9", nodeOut: "fd00:1::1", nodeIn: "fd00:2::1",
			service: "fd96::10", unused: "fd96::99", leads: "fd96::11",
		},
	}
}

// proxies are the ways in which other programs rewrite addresses: first those of
// Services to their backends, then every source.
func proxies() map[string]func(t *testing.T, router tablestest.Namespace, f family) {
	tables := func(variant string) func(t *testing.T, router tablestest.Namespace, f family) {
		return func(t *testing.T, router tablestest.Namespace, f family) {
			tool := map[model.Family]string{model.IPv4: "iptables-", model.IPv6: "ip6tables-"}[f.Family] + variant
			for _, chain := range []string{"PREROUTING", "OUTPUT"} {
				for from, to := range f.rewritten() {
					router.Run(t, tool, "-t", "nat", "-A", chain, "-p", "udp", "-d", from.Addr().String(), "--dport", fmt.Sprint(from.Port()), "-j", "DNAT", "--to-destination", to.String())
				}
			}
			router.Run(t, tool, "-t", "nat", "-A", "POSTROUTING", "-j", "MASQUERADE")
		}
	}
	return map[string]func(t *testing.T, router tablestest.Namespace, f family){
		"iptables-legacy": tables("legacy"), "iptables-nft": tables("nft"),
		"nft": func(t *testing.T, router tablestest.Namespace, f family) { masquerader(t, router, f, 100) },
	}
}

// masquerader rewrites with nft, sources at the priority.
func masquerader(t *testing.T, router tablestest.Namespace, f family, priority int) {
	name := map[model.Family]string{model.IPv4: "ip", model.IPv6: "ip6"}[f.Family]
	text := "table " + name + " theirs {\n"
	for _, hook := range []string{"prerouting", "output"} {
		text += fmt.Sprintf("chain d%s { type nat hook %s priority -100;\n", hook, hook)
		for from, to := range f.rewritten() {
			text += fmt.Sprintf("%s daddr %s udp dport %d dnat to %s\n", name, from.Addr(), from.Port(), to)
		}
		text += "}\n"
	}
	text += fmt.Sprintf("chain post { type nat hook postrouting priority %d; masquerade; }\n}\n", priority)
	router.Feed(t, text, "nft", "-f", "-")
}

// rewritten are a Service and a NodePort before the pod, and a Service that leads
// outside.
func (f family) rewritten() map[netip.AddrPort]netip.AddrPort {
	at := func(a string, port uint16) netip.AddrPort { return netip.AddrPortFrom(addr(a), port) }
	return map[netip.AddrPort]netip.AddrPort{
		at(f.service, 80): at(f.pod, 80), at(f.nodeOut, 30080): at(f.pod, 80), at(f.leads, 80): at(f.client, 80),
	}
}

func newHostPath(t *testing.T) *hostPath {
	t.Helper()
	return newHostPathWith(t, rules.NewRenderer("r2", rules.NFTablesNameLength))
}

func newHostPathWith(t *testing.T, r *rules.Renderer) *hostPath {
	t.Helper()
	p := &hostPath{Path: tablestest.NewPath(t, "nft", "iptables-legacy", "ip6tables-legacy", "iptables-nft", "ip6tables-nft")}
	p.table = nftables.New(nftables.Options{NetNS: p.Router.FD, Table: "felixlike-test"})
	t.Cleanup(func() { _ = p.table.Close() })
	p.Receiver.Run(t, "sysctl", "-qw", "net.ipv4.conf.all.accept_local=1", "net.ipv4.conf.eth0.accept_local=1")
	// Without link-local addresses, neighbour discovery fails.
	for _, ns := range []tablestest.Namespace{p.Sender, p.Router, p.Receiver} {
		eventually.True(t, "no address is tentative", func() bool { return ns.Run(t, "ip", "-6", "address", "show", "tentative") == "" })
	}
	options := HostOptions{Node: "node1", Masquerade: true}
	node := &model.Node{Name: "node1"}
	a := &model.Attachment{Pod: pod("pod"), Interface: "fx-pod"}
	other := &model.Attachment{Pod: pod("other"), Interface: "fx-other"}
	isolated := &model.Attachment{Pod: pod("isolated"), Interface: "fx-isolated"}
	hairpins := map[model.Family]netip.Addr{}
	for _, f := range families() {
		options.Services = append(options.Services, netip.MustParsePrefix(f.services))
		node.PodCIDRs = append(node.PodCIDRs, netip.MustParsePrefix(f.pods))
		hairpins[f.Family] = addr(f.hairpin)
		a.Addresses = append(a.Addresses, addr(f.pod))
		other.Addresses = append(other.Addresses, addr(f.other))
		isolated.Addresses = append(isolated.Addresses, addr(f.isolated))
		// Packets that are not translated go outside, and are answered there.
		p.Router.Run(t, "ip", "route", "add", f.services, "via", map[model.Family]string{model.IPv4: "192.168.1.2", model.IPv6: "fd00:1::2"}[f.Family])
		p.Sender.Run(t, "ip", "route", "add", "local", f.services, "dev", "lo")
		for _, address := range []string{f.pod, f.other} {
			echo(t, p.Receiver, address)
		}
		for _, address := range []string{f.client, f.unused} {
			echo(t, p.Sender, address)
		}
	}
	options.Hairpin = func(f model.Family) netip.Addr { return hairpins[f] }
	p.manager = NewHostManager(options, r, p.table, p.table)
	send(NewNoServiceManager(p.table))
	closed := &model.Endpoint{ID: pod("isolated"), Egress: model.Applied{NetworkPolicies: []model.PolicyID{policyID("deny")}}}
	send(p.manager, model.NodeUpdate{Node: node},
		model.AttachmentUpdate{Attachment: a}, model.AttachmentUpdate{Attachment: other}, model.AttachmentUpdate{Attachment: isolated},
		endpoint("pod"), endpoint("other"), model.EndpointUpdate{Endpoint: closed})
	return p
}

func (p *hostPath) load(t *testing.T) {
	t.Helper()
	if r, err := p.table.Apply(t.Context()); err != nil || len(r.Refused) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
}

// inside runs f on a thread in the namespace.
func inside(t *testing.T, ns tablestest.Namespace, f func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		// Not unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		if err := unix.Setns(ns.FD, unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// echo answers datagrams to an address with the address that they come from.
func echo(t *testing.T, ns tablestest.Namespace, address string) {
	t.Helper()
	inside(t, ns, func() error {
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr(address), 80)))
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = conn.Close() })
		go func() {
			buffer := make([]byte, 64)
			for {
				_, from, err := conn.ReadFromUDPAddrPort(buffer)
				if err != nil {
					return
				}
				_, _ = conn.WriteToUDPAddrPort([]byte(from.Addr().Unmap().String()), from)
			}
		}()
		return nil
	})
}

// client is a flow of datagrams; from may be empty.
func client(t *testing.T, ns tablestest.Namespace, from, to string, port uint16) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	inside(t, ns, func() (err error) {
		var local *net.UDPAddr
		if from != "" {
			local = net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr(from), 0))
		}
		conn, err = net.DialUDP("udp", local, net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr(to), port)))
		return err
	})
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// seen returns the source address that the other end sees: "" if there is no answer.
func seen(t *testing.T, conn *net.UDPConn, attempts int) string {
	t.Helper()
	buffer := make([]byte, 64)
	for range attempts {
		if _, err := conn.Write([]byte("?")); err != nil {
			t.Logf("%s -> %s: %v", conn.LocalAddr(), conn.RemoteAddr(), err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if n, err := conn.Read(buffer); err == nil {
			return string(buffer[:n])
		}
	}
	return ""
}

// Attempts for packets that must get through, and for packets that must not.
const (
	patient = 20
	brief   = 2
)

func wantSeen(t *testing.T, what string, conn *net.UDPConn, want string) {
	t.Helper()
	attempts := patient
	if want == "" {
		attempts = brief
	}
	if got := seen(t, conn, attempts); got != want {
		t.Errorf("%s: seen as %q, want %q", what, got, want)
	}
}

// Reports of denied packets have the packets of pods to Service addresses that no proxy
// rewrites, and no other packets that leave the switch.
func TestHostReportsWhatGoesToNoService(t *testing.T) {
	p := newHostPath(t)
	noService := NewNoServiceManager(p.table)
	send(noService, model.DenialsUpdate{Reported: true})
	p.load(t)
	reports := make(chan denied.Report, 16)
	ctx, cancel := context.WithCancel(t.Context())
	ended, err := denied.ListenNFLOG(ctx, p.Router.FD, rules.ReportGroup, func(r denied.Report) { reports <- r })
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families() {
		wantSeen(t, "a pod to the outside", client(t, p.Receiver, f.other, f.client, 80), f.nodeOut)
		wantSeen(t, "a pod to an address without a Service", client(t, p.Receiver, f.other, f.unused, 80), "")
		for range brief {
			drop, err := (&denied.View{}).Drop(<-reports)
			if err != nil || drop.By != control.ByNoService || drop.To.Address != addr(f.unused) || drop.From.Address != addr(f.other) {
				t.Errorf("reported %+v, %v", drop, err)
			}
		}
	}
	send(noService, model.DenialsUpdate{})
	p.load(t)
	wantSeen(t, "a pod to an address without a Service", client(t, p.Receiver, families()[0].other, families()[0].unused, 80), "")
	cancel()
	<-ended
	if n := len(reports); n > 0 {
		t.Errorf("%d more packets reported", n)
	}
}

// The switch sees the true source although another program masquerades all packets.
// Replies find their way back through the address translation.
func TestHostKeepsSources(t *testing.T) {
	for name, rewrite := range proxies() {
		t.Run(name, func(t *testing.T) {
			p := newHostPath(t)
			for _, f := range families() {
				rewrite(t, p.Router, f)
			}
			p.load(t)
			for _, f := range families() {
				wantSeen(t, "outside to NodePort", client(t, p.Sender, f.client, f.nodeOut, 30080), f.client)
				wantSeen(t, "outside to a pod", client(t, p.Sender, f.client, f.pod, 80), f.client)
				wantSeen(t, "a pod to itself through a Service", client(t, p.Receiver, f.pod, f.service, 80), f.hairpin)
				wantSeen(t, "the node to a pod", client(t, p.Router, "", f.pod, 80), f.nodeIn)
				wantSeen(t, "the node, as another of its addresses, to a Service", client(t, p.Router, f.nodeOut, f.service, 80), f.nodeIn)
				wantSeen(t, "a pod to the outside", client(t, p.Receiver, f.other, f.client, 80), f.nodeOut)
				wantSeen(t, "a pod to a Service that leads outside", client(t, p.Receiver, f.other, f.leads, 80), f.nodeOut)
				wantSeen(t, "an isolated pod to a Service that leads outside", client(t, p.Receiver, f.isolated, f.leads, 80), "")
				wantSeen(t, "an isolated pod to the outside, as the switch judges", client(t, p.Receiver, f.isolated, f.client, 80), f.nodeOut)
				wantSeen(t, "a pod to an address without a Service", client(t, p.Receiver, f.other, f.unused, 80), "")
			}
		})
	}
}

// With translation by the switch, the host translates packets of IPv4 only if a Service has led them outside, and drops others
// of pods that come to it. It does not take a copy of what the switch has.
func TestHostLeavesTranslationToTheSwitch(t *testing.T) {
	p := newHostPath(t)
	for _, f := range families() {
		masquerader(t, p.Router, f, 100)
	}
	// Only the rules of Services stay of the other program.
	p.Router.Run(t, "nft", "flush chain ip theirs post; flush chain ip6 theirs post")
	p.manager.options.SNATBridge = "r1"
	node := *p.manager.nodes["node1"]
	node.Addresses = []netip.Addr{addr("192.168.1.1")}
	send(p.manager, model.NodeUpdate{Node: &node})
	p.load(t)
	four, six := families()[0], families()[1]
	wantSeen(t, "a pod to the outside", client(t, p.Receiver, four.other, four.client, 80), "")
	wantSeen(t, "a pod to a Service that leads outside", client(t, p.Receiver, four.other, four.leads, 80), four.nodeOut)
	wantSeen(t, "outside to a pod", client(t, p.Sender, four.client, four.pod, 80), four.client)
	wantSeen(t, "outside to NodePort", client(t, p.Sender, four.client, four.nodeOut, 30080), four.client)
	wantSeen(t, "a pod to the outside by IPv6", client(t, p.Receiver, six.other, six.client, 80), six.nodeOut)
	reset := func() bool {
		var err error
		inside(t, p.Sender, func() error {
			_, err = net.DialTimeout("tcp", "192.168.1.1:10250", 300*time.Millisecond)
			return nil
		})
		return errors.Is(err, unix.ECONNREFUSED)
	}
	if !reset() {
		t.Error("TCP that comes by the bridge is not answered")
	}
	p.manager.options.SNATBridge = "br-phy"
	send(p.manager, model.NodeUpdate{Node: &node})
	p.load(t)
	if reset() {
		t.Error("TCP that comes by the uplink is answered, although the switch has it too")
	}
}

// Packets with addresses that cannot be theirs do not get to the switch, nor those
// of no connection.
func TestHostDropsForgedPackets(t *testing.T) {
	p := newHostPath(t)
	hairpin4, hairpin6 := families()[0].hairpin, families()[1].hairpin
	for _, a := range []string{"10.2.9.9", "192.168.2.1", "fd02::99", "fd00:2::1", hairpin4, hairpin6} {
		p.Sender.Run(t, "ip", "route", "add", "local", a, "dev", "lo")
	}
	p.load(t)
	p.Want(t, []tablestest.PacketCase{
		tablestest.Packet(model.UDP, "10.1.0.9", "10.2.0.5", 81, true),
		tablestest.Packet(model.UDP, "10.2.9.9", "10.2.0.5", 81, false),
		tablestest.Packet(model.UDP, "192.168.2.1", "10.2.0.5", 81, false),
		tablestest.Packet(model.UDP, hairpin4, "10.2.0.5", 81, false),
		tablestest.Packet(model.TCP, "10.1.0.9", "10.2.0.5", 81, false), // it has no TCP header
		tablestest.Packet(model.UDP, "fd01::9", "fd02::5", 81, true),
		tablestest.Packet(model.UDP, "fd02::99", "fd02::5", 81, false),
		tablestest.Packet(model.UDP, "fd00:2::1", "fd02::5", 81, false),
		tablestest.Packet(model.UDP, hairpin6, "fd02::5", 81, false),
		tablestest.Packet(model.TCP, "fd01::9", "fd02::5", 81, false),
	})
}

// TestHostBelievesRoutedPeers: without a tunnel, packets of a peer's pods come to the switch if Senders has marked them, and from
// nowhere else. Packets of pods to the peer's pods keep their source although another program masquerades all packets.
func TestHostBelievesRoutedPeers(t *testing.T) {
	p := newHostPathWith(t, rules.NewRenderer("r2", rules.NFTablesNameLength).Routed(true))
	peer := &model.Node{Name: "node2", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("fd01::/64")}}
	send(p.manager, model.NodeUpdate{Node: peer})
	for _, f := range families() {
		masquerader(t, p.Router, f, 100)
	}
	p.load(t)
	for _, f := range families() {
		wantSeen(t, "a peer's pod that nobody believes", client(t, p.Sender, f.client, f.pod, 80), "")
	}
	p.Router.Feed(t, fmt.Sprintf(`table inet believe { chain senders { type filter hook prerouting priority -450; iifname "r1" meta mark set meta mark | %#x; }; }`, rules.MarkBelieved), "nft", "-f", "-")
	for _, f := range families() {
		wantSeen(t, "a peer's pod", client(t, p.Sender, f.client, f.pod, 80), f.client)
		wantSeen(t, "a pod to a peer's pod", client(t, p.Receiver, f.other, f.client, 80), f.other)
		wantSeen(t, "an isolated pod to a peer's pod, as the switch judges", client(t, p.Receiver, f.isolated, f.client, 80), f.isolated)
		wantSeen(t, "a pod to a Service of a peer's pod", client(t, p.Receiver, f.other, f.leads, 80), f.other)
		wantSeen(t, "an isolated pod to a Service of a peer's pod", client(t, p.Receiver, f.isolated, f.leads, 80), "")
		wantSeen(t, "the node to a Service of a peer's pod", client(t, p.Router, "", f.leads, 80), f.nodeOut)
	}
	send(p.manager, model.NodeRemove{Name: "node2"})
	p.load(t)
	for _, f := range families() {
		wantSeen(t, "the pod network of no peer", client(t, p.Receiver, f.other, f.client, 80), f.nodeOut)
	}
}

// TestHostKeepsSourcesTowardsRoutes: while a route of another traffic mode still leads past the tunnel, packets of pods to a peer's pods
// keep their source. NAT would bind the connection to the node's address for good.
func TestHostKeepsSourcesTowardsRoutes(t *testing.T) {
	p := newHostPath(t)
	send(p.manager, model.NodeUpdate{Node: &model.Node{Name: "node2", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("fd01::/64")}}})
	p.load(t)
	for _, f := range families() {
		name := map[model.Family]string{model.IPv4: "ip", model.IPv6: "ip6"}[f.Family]
		p.Sender.Feed(t, fmt.Sprintf(`table %[1]s seen { chain in { type filter hook input priority 0; %[1]s saddr %[2]s udp dport 80 counter; }; }`, name, f.other), "nft", "-f", "-")
		// This node does not believe the answer, which comes without the tunnel too.
		wantSeen(t, "a pod to a peer's pod", client(t, p.Receiver, f.other, f.client, 80), "")
		if counted := p.Sender.Run(t, "nft", "list", "table", name, "seen"); strings.Contains(counted, "packets 0 ") || !strings.Contains(counted, "packets ") {
			t.Errorf("the peer's pod has not seen the pod's own address:\n%s", counted)
		}
	}
	send(p.manager, model.NodeRemove{Name: "node2"})
	p.load(t)
	for _, f := range families() {
		wantSeen(t, "a pod to the outside", client(t, p.Receiver, f.other, f.client, 80), f.nodeOut)
	}
}

// TestHostDropsLaunderedSources: packets that another rule has given the node's own address, before our rules
// or while they were missing, do not get to the switch. A connection that another backend has allowed
// meanwhile goes on.
func TestHostDropsLaunderedSources(t *testing.T) {
	p := newHostPath(t)
	var before []*net.UDPConn
	for _, f := range families() {
		masquerader(t, p.Router, f, 98)
		conn := client(t, p.Sender, f.client, f.nodeOut, 30080)
		wantSeen(t, "without the host's chains", conn, f.nodeIn)
		before = append(before, conn)
	}
	p.load(t)
	for i, f := range families() {
		wantSeen(t, "a connection of before", before[i], "")
		wantSeen(t, "another masquerades first", client(t, p.Sender, f.client, f.nodeOut, 30080), "")
		wantSeen(t, "the node to a Service", client(t, p.Router, f.nodeOut, f.service, 80), f.nodeIn)
	}
	p.Router.Feed(t, fmt.Sprintf(`table inet judge { chain allow { type filter hook prerouting priority 0; ct mark set %#x; }; }`, rules.MarkAllowed), "nft", "-f", "-")
	for i, f := range families() {
		wantSeen(t, "a connection that another backend has allowed", before[i], f.nodeIn)
		wantSeen(t, "one to a Service that leads outside", client(t, p.Receiver, f.isolated, f.leads, 80), f.nodeOut)
	}
}

// The guard holds up new connections and passes existing ones.
func TestHostGuard(t *testing.T) {
	p := newHostPath(t)
	p.load(t)
	for _, f := range families() {
		masquerader(t, p.Router, f, 100)
		conn := client(t, p.Sender, f.client, f.pod, 80)
		wantSeen(t, "before", conn, f.client)
		for _, c := range rules.HostGuard("r2") {
			p.table.UpdateChain(c)
		}
		p.load(t)
		wantSeen(t, "behind the guard, an old connection", conn, f.client)
		wantSeen(t, "behind the guard, a new one", client(t, p.Sender, f.client, f.pod, 80), "")
		for _, c := range rules.HostGuard("r2") {
			p.table.RemoveChain(c.Name)
		}
		p.load(t)
		wantSeen(t, "after it", client(t, p.Sender, f.client, f.pod, 80), f.client)
	}
}
