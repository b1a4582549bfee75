package cni_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/felixlike/felixlike/cni"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdaemon"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/test/lab/probe"
)

// gatewayMAC is the MAC address of the gateway port.
const gatewayMAC = "02:00:00:00:09:01"

// node is a namespace with an Open vSwitch and a bridge that learns. It routes between the pods by the gateway port.
type node struct {
	*testing.T
	ns  *namespace.Namespace
	ovs *ovsdaemon.Daemons
	ctx context.Context
}

func newNode(t *testing.T) *node {
	t.Helper()
	if err := ovsdaemon.Available(); err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	n := &node{T: t, ctx: ctx, ns: space(t, "node")}
	dir, err := ovsdaemon.TempDir()
	n.must(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	n.ovs, err = ovsdaemon.Start(ctx, ovsdaemon.Options{Dir: dir, NetNS: n.ns.Path()})
	n.must(err)
	t.Cleanup(func() { n.must(n.ovs.Stop()) })
	n.vsctl("add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev", "--",
		"add-port", "br-int", model.GatewayPort, "--", "set", "interface", model.GatewayPort, "type=internal", `mac="`+gatewayMAC+`"`)
	n.must(n.ns.Do(func() error {
		out, err := exec.Command("sh", "-ec", `sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.send_redirects=0
			ip address add 10.9.0.1/24 dev flx-gw0; ip address add fd09::1/64 dev flx-gw0 nodad; ip link set flx-gw0 up`).CombinedOutput()
		if err != nil {
			return fmt.Errorf("gateway port: %w: %s", err, out)
		}
		return nil
	}))
	return n
}

func space(t *testing.T, name string) *namespace.Namespace {
	t.Helper()
	ns, err := namespace.Create(fmt.Sprintf("flx-cni-%d-%s", os.Getpid(), name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ns.Close()
		if err := namespace.Delete(ns.Name()); err != nil {
			t.Error(err)
		}
	})
	return ns
}

func (n *node) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

func (n *node) vsctl(args ...string) string {
	n.Helper()
	out, err := exec.Command("ovs-vsctl", append([]string{"--db=unix:" + n.ovs.DBSocket()}, args...)...).CombinedOutput()
	if err != nil {
		n.Fatalf("ovs-vsctl %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (n *node) spec(pod, owner string, ns *namespace.Namespace, host int) cni.Spec {
	return cni.Spec{
		Pod: model.PodID{Namespace: "x", Name: pod}, Owner: owner, NetNS: ns.Path(), Interface: "eth0", MTU: 1450,
		Addresses: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.9.0.%d", host)), netip.MustParseAddr(fmt.Sprintf("fd09::%d", host))},
		Gateways:  []netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("fd09::1")},
		Bridge:    "br-int", OVSDB: n.ovs.DBSocket(),
	}
}

func (n *node) attach(s cni.Spec) (a *model.Attachment, err error) {
	err = n.ns.Do(func() error {
		a, err = cni.Attach(n.ctx, s)
		return err
	})
	return a, err
}

func (n *node) detach(s cni.Spec) {
	n.Helper()
	n.must(n.ns.Do(func() error { return cni.Detach(n.ctx, s) }))
}

// ports returns the ports of pods.
func (n *node) ports() []string {
	n.Helper()
	return slices.DeleteFunc(strings.Fields(n.vsctl("list-ports", "br-int")), func(p string) bool { return p == model.GatewayPort })
}

// links returns the names of the node's interfaces.
func (n *node) links() string {
	n.Helper()
	var names []string
	n.must(n.ns.Do(func() error {
		links, err := net.Interfaces()
		for _, l := range links {
			names = append(names, l.Name)
		}
		return err
	}))
	return strings.Join(names, " ")
}

// reach reports which protocols get from one pod to the other, both families.
func (n *node) reach(from *namespace.Namespace, fromHost int, to *namespace.Namespace, toHost int) string {
	n.Helper()
	return n.reachBy(from, fromHost, to, toHost, "10.9.0.%d", "fd09::%d")
}

// reach4 is reach by IPv4 alone.
func (n *node) reach4(from *namespace.Namespace, fromHost int, to *namespace.Namespace, toHost int) string {
	n.Helper()
	return n.reachBy(from, fromHost, to, toHost, "10.9.0.%d")
}

func (n *node) reachBy(from *namespace.Namespace, fromHost int, to *namespace.Namespace, toHost int, formats ...string) string {
	n.Helper()
	a, b := probe.NewStation(from), probe.NewStation(to)
	defer a.Close()
	defer b.Close()
	var flows []probe.Flow
	for _, format := range formats {
		for _, proto := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
			target := netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf(format, toHost)), 80)
			n.must(b.Serve(proto, target))
			flows = append(flows, probe.Flow{From: a, Source: netip.MustParseAddr(fmt.Sprintf(format, fromHost)), Target: target, Protocol: proto})
		}
	}
	got := ""
	for _, o := range probe.Run(n.ctx, flows, probe.Options{Timeout: 15 * time.Second}) {
		if o.Through {
			got += "1"
		} else {
			got += "0"
		}
	}
	return got
}

func TestAttachedPodsTalk(t *testing.T) {
	n := newNode(t)
	a, b := space(t, "a"), space(t, "b")
	sa, sb := n.spec("a", "one", a, 11), n.spec("b", "two", b, 12)
	first, err := n.attach(sa)
	n.must(err)
	_, err = n.attach(sb)
	n.must(err)
	if first.OFPort == 0 || first.Interface != cni.HostInterface(sa.Pod) || first.MAC.String() != cni.MAC(sa.Pod).String() || len(first.Addresses) != 2 {
		t.Errorf("attachment %+v", first)
	}
	if got := n.reach(a, 11, b, 12); got != "111111" {
		t.Errorf("tcp, udp, sctp over IPv4 and IPv6: %s", got)
	}
	again, err := n.attach(sa)
	n.must(err)
	if again.OFPort != first.OFPort {
		t.Errorf("attached again on port %d, was %d", again.OFPort, first.OFPort)
	}
	if got := n.reach(b, 12, a, 11); got != "111111" {
		t.Errorf("after attaching again: %s", got)
	}
	n.must(a.Do(func() error {
		link, err := net.InterfaceByName("eth0")
		if err == nil && (link.MTU != 1450 || link.HardwareAddr.String() != first.MAC.String()) {
			t.Errorf("eth0 has mtu %d and mac %s", link.MTU, link.HardwareAddr)
		}
		return err
	}))
	for range 2 {
		n.detach(sa)
	}
	if got := n.ports(); !slices.Equal(got, []string{cni.HostInterface(sb.Pod)}) {
		t.Errorf("ports after detach: %v", got)
	}
	if strings.Contains(n.links(), first.Interface) {
		t.Errorf("interface %s is still there", first.Interface)
	}
}

func TestLateDetachDoesNotHurtTheNewOwner(t *testing.T) {
	n := newNode(t)
	old, fresh, other := space(t, "old"), space(t, "new"), space(t, "other")
	first, second := n.spec("a", "sandbox1", old, 11), n.spec("a", "sandbox2", fresh, 11)
	_, err := n.attach(first)
	n.must(err)
	_, err = n.attach(second)
	n.must(err)
	_, err = n.attach(n.spec("b", "sandbox3", other, 12))
	n.must(err)
	n.detach(first)
	if got := n.reach(fresh, 11, other, 12); got != "111111" {
		t.Errorf("the pod's second sandbox after the first one's late detach: %s", got)
	}
}

// A detach that the database does not note leaves the interface: a port without one is taken for a pod
// that has lost it.
func TestFailedDetachKeepsTheInterface(t *testing.T) {
	n := newNode(t)
	s := n.spec("a", "one", space(t, "a"), 11)
	before := n.links()
	_, err := n.attach(s)
	n.must(err)
	attached := n.links()
	db, err := ovsdb.Open(n.ctx, ovsdb.Config{Socket: s.OVSDB, Bridge: s.Bridge})
	n.must(err)
	defer db.Close()
	detach := func(patience time.Duration) error {
		ctx, cancel := context.WithTimeout(n.ctx, patience)
		defer cancel()
		return n.ns.Do(func() error { return cni.NewAttacher(db).Detach(ctx, s) })
	}
	server, _ := n.ovs.PIDs()
	n.must(syscall.Kill(server, syscall.SIGSTOP))
	err = detach(time.Second)
	n.must(syscall.Kill(server, syscall.SIGCONT))
	if err == nil {
		t.Error("a detach that no database noted did not fail")
	}
	if now := n.links(); now != attached {
		t.Errorf("interfaces before %q, after %q", attached, now)
	}
	n.must(detach(time.Minute))
	if now := n.links(); now != before {
		t.Errorf("interfaces before %q, after %q", before, now)
	}
}

func TestFailedAttachLeavesNothing(t *testing.T) {
	n := newNode(t)
	pod := space(t, "a")
	s := n.spec("a", "one", pod, 11)
	s.Bridge = "br-missing"
	before := n.links()
	if _, err := n.attach(s); err == nil || !strings.Contains(err.Error(), "br-missing") {
		t.Fatalf("attach to a bridge that is not there: %v", err)
	}
	if after := n.links(); after != before {
		t.Errorf("interfaces before %q, after %q", before, after)
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, pod := range []model.PodID{{Namespace: "x", Name: "a"}, {Namespace: "y", Name: "a"}, {Namespace: "x", Name: "a-very-long.name-of-a-pod"}, {Namespace: "x-a", Name: "b"}, {Namespace: "x", Name: "a-b"}} {
		name, mac := cni.HostInterface(pod), cni.MAC(pod)
		if len(name) > 15 || seen[name] || seen[mac.String()] {
			t.Errorf("%s: name %q, mac %s", pod, name, mac)
		}
		if mac[0]&3 != 2 {
			t.Errorf("%s: mac %s is not a locally administered unicast address", pod, mac)
		}
		seen[name], seen[mac.String()] = true, true
	}
}

// If another pod has its interface name, a pod gets a different one. It keeps this name
// when it is attached again, with or without the other pod, and detach finds it. The
// other pod keeps its interface, its record and its connections.
func TestInterfaceCollision(t *testing.T) {
	n := newNode(t)
	mine, theirs, other := space(t, "mine"), space(t, "theirs"), space(t, "other")
	late, victim, peer := n.spec("late", "sandbox1", mine, 11), n.spec("victim", "sandbox2", theirs, 12), n.spec("b", "sandbox3", other, 13)
	victim.HostInterface = cni.HostInterface(late.Pod)
	planted, err := n.attach(victim)
	n.must(err)
	_, err = n.attach(peer)
	n.must(err)
	n.detach(late) // as a runtime does before it adds
	first, err := n.attach(late)
	n.must(err)
	if first.Interface == planted.Interface || len(first.Interface) > 15 || !strings.HasPrefix(first.Interface, model.PodInterfacePrefix) {
		t.Errorf("the pod's interface %q, the other pod's %q", first.Interface, planted.Interface)
	}
	for _, to := range []struct {
		ns   *namespace.Namespace
		host int
	}{{theirs, 12}, {mine, 11}} {
		if got := n.reach(to.ns, to.host, other, 13); got != "111111" {
			t.Errorf("10.9.0.%d beside the other pod: %s", to.host, got)
		}
	}
	same := func(state string) {
		t.Helper()
		again, err := n.attach(late)
		n.must(err)
		if again.Interface != first.Interface || again.OFPort != first.OFPort {
			t.Errorf("%s: interface %s on port %d, before %s on %d", state, again.Interface, again.OFPort, first.Interface, first.OFPort)
		}
	}
	same("with the other pod")
	n.detach(late)
	if got := n.vsctl("get", "interface", planted.Interface, "external_ids:felixlike-pod-name"); got != victim.Pod.Name {
		t.Errorf("the record names pod %s", got)
	}
	if got := n.reach(theirs, 12, other, 13); got != "111111" {
		t.Errorf("the other pod after the detach: %s", got)
	}
	if strings.Contains(n.links(), first.Interface) {
		t.Errorf("interface %s is still there", first.Interface)
	}
	first, err = n.attach(late)
	n.must(err)
	n.detach(victim)
	same("without the other pod")
	n.detach(late)
	n.detach(peer)
	if got := append(n.ports(), podLinks(n.links())...); len(got) > 0 {
		t.Errorf("left: %v", got)
	}
}

func podLinks(links string) []string {
	return slices.DeleteFunc(strings.Fields(links), func(l string) bool { return !strings.HasPrefix(l, model.PodInterfacePrefix) })
}

// If another pod has its MAC address, a pod gets a different one. It keeps this address
// when it is attached again, with or without the other pod. The other pod is unchanged.
func TestMACCollision(t *testing.T) {
	n := newNode(t)
	mine, theirs := space(t, "mine"), space(t, "theirs")
	late, victim := n.spec("late", "sandbox1", mine, 11), n.spec("victim", "sandbox2", theirs, 12)
	victim.MAC = cni.MAC(late.Pod)
	_, err := n.attach(victim)
	n.must(err)
	first, err := n.attach(late)
	n.must(err)
	if mac := first.MAC.String(); mac == victim.MAC.String() || first.MAC[0]&3 != 2 {
		t.Errorf("the other pod's MAC address: %s", mac)
	}
	if got := n.reach(theirs, 12, mine, 11); got != "111111" {
		t.Errorf("between the two: %s", got)
	}
	for _, state := range []string{"with the other pod", "without"} {
		again, err := n.attach(late)
		n.must(err)
		if again.MAC.String() != first.MAC.String() {
			t.Errorf("%s: MAC address %s, before %s", state, again.MAC, first.MAC)
		}
		n.detach(victim)
	}
}

// TestNoIPv6 attaches pods where the kernel has no IPv6. An MTU that is too small for IPv6
// has this effect: the interface has no IPv6 settings.
func TestNoIPv6(t *testing.T) {
	n := newNode(t)
	a, b := space(t, "a"), space(t, "b")
	for host, ns := range map[int]*namespace.Namespace{11: a, 12: b} {
		s := n.spec(fmt.Sprintf("p%d", host), "one", ns, host)
		s.MTU = 1200
		if _, err := n.attach(s); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("address fd09::%d: the kernel has no IPv6", host)) {
			t.Errorf("with an IPv6 address: %v", err)
		}
		s.Addresses, s.Gateways = s.Addresses[:1], s.Gateways[:1]
		_, err := n.attach(s)
		n.must(err)
	}
	if got := n.reach4(a, 11, b, 12); got != "111" {
		t.Errorf("without IPv6: %s", got)
	}
}
