package cni_test

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/cni"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/cnitest"
	"github.com/felixlike/felixlike/test/eventually"
)

// keeps is a GC's configuration with the sandboxes to keep.
func keeps(all ...cnitest.Sandbox) map[string]any {
	valid := []map[string]string{}
	for _, s := range all {
		valid = append(valid, map[string]string{"containerID": s.ID, "ifname": s.Interface})
	}
	return map[string]any{"cni.dev/valid-attachments": valid}
}

func TestStatus(t *testing.T) {
	r := newRuntime(t)
	r.ok("STATUS", "1.1.0", cnitest.Sandbox{}, nil)
	r.agent.set(t, "unavailable", "programming the dataplane failed: no switch")
	r.fails("STATUS", cnitest.Sandbox{}, nil, 50, "not ready: programming the dataplane failed: no switch")
	r.agent.unset(t, "unavailable")
	r.stop(syscall.SIGTERM)
	r.conf.PluginDir = filepath.Join(r.dir, "none")
	r.start()
	r.fails("STATUS", cnitest.Sandbox{}, nil, 50, "host-local")
	if got := r.call("STATUS", "1.0.0", cnitest.Sandbox{}, nil); !got.Failed || got.Code != 1 {
		t.Errorf("STATUS is of version 1.1: %s", got.Raw)
	}
}

func TestGC(t *testing.T) {
	r := newRuntime(t)
	a, b := r.sandbox("sandbox-a", "a"), r.sandbox("sandbox-b", "b")
	for _, s := range []cnitest.Sandbox{a, b} {
		r.ok("ADD", "1.1.0", s, nil)
	}
	before := r.left()
	r.ok("GC", "1.1.0", cnitest.Sandbox{}, keeps(a, b))
	if got := r.left(); got != before {
		t.Errorf("all are valid: before %s, after %s", before, got)
	}
	r.fails("GC", cnitest.Sandbox{}, nil, 7, "cni.dev/valid-attachments")
	r.ok("GC", "1.1.0", cnitest.Sandbox{}, keeps(b))
	host := cni.HostInterface(model.PodID{Namespace: "x", Name: "b"})
	if want := "interfaces [" + host + "], ports [" + host + "], addresses [10.9.0.3 fd09::3]"; r.left() != want {
		t.Errorf("one is valid: %s, want %s", r.left(), want)
	}
	// A pair without a port: an agent was killed while it added a sandbox.
	r.vsctl("del-port", host)
	// host-local was killed before it had written the address's sandbox.
	r.must(os.WriteFile(filepath.Join(r.conf.IPAMDir, "felixlike", "10.9.0.77"), nil, 0o600))
	r.ok("GC", "1.1.0", cnitest.Sandbox{}, keeps())
	if got := r.left(); got != nothing {
		t.Errorf("none is valid: %s", got)
	}
}

// TestCrash makes the leftovers of an agent that was killed during ADD or DEL, and starts
// another agent.
func TestCrash(t *testing.T) {
	r := newRuntime(t)
	stays, gone, reserved := r.sandbox("stays", "stays"), r.sandbox("gone", "gone"), r.sandbox("reserved", "reserved")
	r.ok("ADD", "1.1.0", stays, nil)
	r.ok("ADD", "1.1.0", gone, nil)
	r.ok("ADD", "1.1.0", reserved, nil)
	r.stop(syscall.SIGKILL)
	link := func(s cnitest.Sandbox) string { return cni.HostInterface(model.PodID{Namespace: "x", Name: s.Pod}) }
	// The node was restarted: the port exists, its interface does not. And a sandbox has a
	// reservation, but was never attached.
	r.must(r.ns.Do(func() error {
		for _, s := range []cnitest.Sandbox{gone, reserved} {
			l, err := netlink.LinkByName(link(s))
			if err == nil {
				err = netlink.LinkDel(l)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}))
	r.vsctl("del-port", link(reserved))
	// host-local was killed before it had written the address's sandbox.
	r.must(os.WriteFile(filepath.Join(r.conf.IPAMDir, "felixlike", "10.9.0.77"), nil, 0o600))
	// A pair without a port still has its address.
	orphan := r.sandbox("orphan", "orphan")
	r.start()
	if got, want := r.left(), "interfaces ["+link(stays)+"], ports ["+link(stays)+"], addresses [10.9.0.2 fd09::2]"; got != want {
		t.Errorf("after the start: %s, want %s", got, want)
	}
	r.ok("ADD", "1.1.0", orphan, nil)
	r.vsctl("del-port", link(orphan))
	r.stop(syscall.SIGKILL)
	r.start()
	if got := r.reserved(); !slices.Contains(got, "10.9.0.5") {
		t.Errorf("the address of an interface without a port was given away: %v", got)
	}
	// ADD makes the port again; DEL leaves nothing.
	r.ok("ADD", "1.1.0", orphan, nil)
	for _, s := range []cnitest.Sandbox{gone, reserved, orphan, stays} {
		r.ok("DEL", "1.1.0", s, nil)
	}
	if got := r.left(); got != nothing {
		t.Error(got)
	}
}

// TestKilledWhileAdding kills the agent while it waits for policy: the plugin asks the
// runtime to try again, and DEL leaves nothing.
func TestKilledWhileAdding(t *testing.T) {
	r := newRuntime(t)
	r.waitForEver()
	r.agent.set(t, "hold", "")
	s := r.sandbox("sandbox-a", "a")
	answered := make(chan cnitest.Reply, 1)
	go func() { answered <- r.call("ADD", "1.1.0", s, nil) }()
	eventually.True(r, "the pod has a port", func() bool { return r.vsctl("list-ports", "br-int") != "" })
	r.stop(syscall.SIGKILL)
	if got := <-answered; !got.Failed || got.Code != 11 {
		t.Errorf("ADD while the agent was killed: %s", got.Raw)
	}
	r.agent.unset(t, "hold")
	r.start()
	r.ok("DEL", "1.1.0", s, nil)
	if got := r.left(); got != nothing {
		t.Error(got)
	}
}

// waitForEver restarts the server with a wait for policy that is longer than any test.
func (r *runtime) waitForEver() {
	r.Helper()
	r.stop(syscall.SIGTERM)
	r.conf.Wait = time.Hour
	r.start()
}

// TestRuntimeGivesUp kills the plugin while the agent waits for policy: the agent undoes the
// ADD without a DEL.
func TestRuntimeGivesUp(t *testing.T) {
	r := newRuntime(t)
	r.waitForEver()
	r.agent.set(t, "hold", "")
	s := r.sandbox("sandbox-a", "a")
	cmd, err := r.Command(r.ctx, "ADD", "1.1.0", s, nil)
	r.must(err)
	r.must(cmd.Start())
	eventually.True(r, "the pod has a port", func() bool { return r.vsctl("list-ports", "br-int") != "" })
	r.must(cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	eventually.True(r, "nothing is left", func() bool { return r.left() == nothing })
}

// TestLateDel deletes the first sandbox of a pod after a second one was added under its
// name. It also deletes a sandbox after another pod got its address.
func TestLateDel(t *testing.T) {
	r := newRuntime(t)
	r.setNode("10.9.0.0/29")
	first, second := r.sandbox("first", "a"), r.sandbox("second", "a")
	other := r.sandbox("other", "b")
	r.ok("ADD", "1.1.0", other, nil)
	r.ok("ADD", "1.1.0", first, nil)
	r.ok("ADD", "1.1.0", second, nil)
	r.ok("DEL", "1.1.0", first, nil)
	if got, want := r.reserved(), []string{"10.9.0.2", "10.9.0.4"}; !slices.Equal(got, want) {
		t.Errorf("reserved %v, want %v", got, want)
	}
	if got := r.reach4(second.NS, 4, other.NS, 2); got != "111" {
		t.Errorf("the second sandbox after the first one's DEL: %s", got)
	}
	// By its address: another pod gets 10.9.0.3, and a second DEL arrives.
	var third cnitest.Sandbox
	for _, id := range []string{"p5", "p6", "p3"} {
		third = r.sandbox(id, id)
		r.ok("ADD", "1.1.0", third, nil)
	}
	r.ok("DEL", "1.1.0", first, nil)
	if got := r.reach4(third.NS, 3, other.NS, 2); got != "111" {
		t.Errorf("the new owner of the address after a late DEL: %s", got)
	}
	if got := r.reserved(); !slices.Contains(got, "10.9.0.3") {
		t.Errorf("a late DEL gave away the address of its new owner: %v", got)
	}
}

// If another pod has its interface name, a sandbox gets the next one.
func TestAddOfAnotherPodsName(t *testing.T) {
	r := newRuntime(t)
	theirs, peer, mine := r.sandbox("theirs", "a"), r.sandbox("peer", "b"), r.sandbox("mine", "a")
	r.ok("ADD", "1.1.0", theirs, nil)
	r.ok("ADD", "1.1.0", peer, nil)
	host := cni.HostInterface(model.PodID{Namespace: "x", Name: "a"})
	r.vsctl("set", "interface", host, "external_ids:felixlike-pod-name=victim")
	before := r.left()
	got := r.ok("ADD", "1.1.0", mine, nil)
	if got.Interfaces[0].Name == host {
		t.Errorf("the name of the other pod in %s", got.Raw)
	}
	r.ok("CHECK", "1.1.0", mine, map[string]any{"prevResult": got.Result})
	if got := r.reach4(mine.NS, 4, peer.NS, 3); got != "111" {
		t.Errorf("the second pod: %s", got)
	}
	r.ok("DEL", "1.1.0", mine, nil)
	if got := r.left(); got != before {
		t.Errorf("before %s, after %s", before, got)
	}
	if got := r.reach4(theirs.NS, 2, peer.NS, 3); got != "111" {
		t.Errorf("the pod that has the name: %s", got)
	}
}

// TestDelOfWhatIsGone deletes without a namespace, without the pod's name, and a sandbox that
// was never added.
func TestDelOfWhatIsGone(t *testing.T) {
	r := newRuntime(t)
	r.ok("DEL", "1.1.0", cnitest.Sandbox{ID: "never", Namespace: "x", Pod: "never", Interface: "eth0"}, nil)
	s := r.sandbox("sandbox-a", "a")
	r.ok("ADD", "1.1.0", s, nil)
	s.Pod, s.NS = "", nil
	r.ok("DEL", "1.1.0", s, nil)
	if got := r.left(); got != nothing {
		t.Error(got)
	}
	r.ok("DEL", "1.1.0", s, nil)
}

func TestRefused(t *testing.T) {
	r := newRuntime(t)
	s := r.sandbox("sandbox-a", "a")
	r.ok("ADD", "1.1.0", s, nil)
	before := r.left()
	second := s
	second.Interface = "net1"
	r.fails("ADD", second, nil, 4, "has the interface eth0 already")
	r.ok("DEL", "1.1.0", second, nil)
	if got := r.left(); got != before {
		t.Errorf("a second interface was refused and deleted: before %s, after %s", before, got)
	}
	// Another plugin was there first: a retry does not help, and its interface stays.
	taken := r.sandbox("taken", "taken")
	peer := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "other"}
	if err := taken.NS.Do(func() error { return netlink.LinkAdd(peer) }); err != nil {
		t.Fatal(err)
	}
	r.fails("ADD", taken, nil, 4, "it has an interface eth0 of another program")
	if err := taken.NS.Do(func() error { _, err := netlink.LinkByName("eth0"); return err }); err != nil {
		t.Error(err)
	}
	if got := r.left(); got != before {
		t.Errorf("left %s, want %s", got, before)
	}
	nameless := r.sandbox("nameless", "")
	r.fails("ADD", nameless, nil, 4, "no namespace or no name")
	chained := map[string]any{"prevResult": map[string]any{"cniVersion": "1.1.0"}}
	r.fails("ADD", r.sandbox("chained", "c"), chained, 7, "first plugin")
	r.fails("ADD", r.sandbox("relative", "c"), map[string]any{"socket": "cni.sock"}, 7, "absolute")
	own := cnitest.Sandbox{ID: "own", Namespace: "x", Pod: "own", Interface: "eth0", NS: r.node.ns}
	r.fails("ADD", own, nil, 4, "the node's own")
	if got := r.left(); got != before {
		t.Errorf("after refusals: before %s, after %s", before, got)
	}
}

// TestCheck breaks an attachment, piece by piece.
func TestCheck(t *testing.T) {
	r := newRuntime(t)
	for name, breakage := range map[string]struct{ in, line, want string }{
		"link":      {"pod", "link del eth0", "host interface"},
		"down":      {"pod", "link set eth0 down", "down"},
		"address":   {"pod", "addr del {4} dev eth0", "has no address"},
		"route":     {"pod", "-6 route del default", "no default route"},
		"gateway":   {"pod", "-6 route del fd09::1", "no route to the gateway fd09::1"},
		"neighbour": {"pod", "neigh del 10.9.0.1 dev eth0", "no permanent neighbour 10.9.0.1"},
		"asks":      {"pod", "neigh change fd09::1 lladdr " + gatewayMAC + " dev eth0 nud stale", "no permanent neighbour fd09::1"},
		"elsewhere": {"pod", "neigh change 10.9.0.1 lladdr 02:00:00:00:00:99 dev eth0 nud permanent", "no permanent neighbour 10.9.0.1"},
		"mac":       {"pod", "link set eth0 address 02:00:00:00:00:99", "MAC address"},
		"host":      {"node", "link set {host} down", "down"},
		"port":      {"ovs", "", "no open port"},
	} {
		s := r.sandbox("check-"+name, name)
		previous := map[string]any{"prevResult": r.ok("ADD", "1.1.0", s, nil).Result}
		host := cni.HostInterface(model.PodID{Namespace: "x", Name: name})
		line := strings.NewReplacer("{4}", r.address(s), "{host}", host).Replace(breakage.line)
		switch breakage.in {
		case "pod":
			r.must(s.NS.Do(func() error { return exec.Command("ip", strings.Fields(line)...).Run() }))
		case "node":
			r.must(r.ns.Do(func() error { return exec.Command("ip", strings.Fields(line)...).Run() }))
		case "ovs":
			// The agent restores a removed port (TestPortIsPutBack).
			r.vsctl("--no-wait", "set", "interface", host, "type=no-such-type")
			eventually.True(r, "ovs-vswitchd has let go of the port", func() bool { return r.vsctl("get", "interface", host, "ofport") == "-1" })
		}
		r.fails("CHECK", s, previous, 999, breakage.want)
		r.ok("DEL", "1.1.0", s, nil)
	}
	s := r.sandbox("other-address", "other-address")
	got := r.ok("ADD", "1.1.0", s, nil)
	got.IPs[0].Address.IP.To4()[3]++
	r.fails("CHECK", s, map[string]any{"prevResult": got.Result}, 999, "has no address")

	// A pod of an earlier version has the prefix on link. It is as it was added, and stays so when it is added again.
	s = r.sandbox("earlier", "earlier")
	added := r.ok("ADD", "1.1.0", s, nil)
	previous := map[string]any{"prevResult": added.Result}
	var addresses []netip.Prefix
	for i, bits := range []int{24, 64} {
		a, _ := netip.AddrFromSlice(added.IPs[i].Address.IP)
		addresses = append(addresses, netip.PrefixFrom(a.Unmap(), bits))
	}
	r.must(cnitest.ToEarlierForm(s.NS, "eth0", addresses, []netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("fd09::1")}))
	r.ok("CHECK", "1.1.0", s, previous)
	r.ok("ADD", "1.1.0", s, nil)
	r.ok("CHECK", "1.1.0", s, previous)
	r.must(s.NS.Do(func() error {
		eth0, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		have, err := eth0.Addrs()
		for _, a := range addresses {
			if !slices.ContainsFunc(have, func(h net.Addr) bool { return h.String() == a.String() }) {
				t.Errorf("addresses of a pod of an earlier version after another ADD: %v, want %s", have, a)
			}
		}
		return err
	}))
	other := r.sandbox("later", "later")
	r.ok("ADD", "1.1.0", other, nil)
	if got := r.reach4(s.NS, int(addresses[0].Addr().As4()[3]), other.NS, int(addresses[0].Addr().As4()[3])+1); got != "111" {
		t.Errorf("from a pod of an earlier version to one of this version: %s", got)
	}
	r.must(s.NS.Do(func() error { return exec.Command("ip", "-4", "route", "del", "default").Run() }))
	r.fails("CHECK", s, previous, 999, "no default route")
}

// TestPortIsPutBack: another program removes a pod's port while the server runs, and while it
// does not run. The server restores the port unless the pod was deleted.
func TestPortIsPutBack(t *testing.T) {
	r := newRuntime(t)
	r.vsctl("set-fail-mode", "br-int", "secure")
	s := r.sandbox("one", "a")
	previous := map[string]any{"prevResult": r.ok("ADD", "1.1.0", s, nil).Result}
	host := cni.HostInterface(model.PodID{Namespace: "x", Name: "a"})
	back := func(when string) {
		t.Helper()
		eventually.True(r, "the port is back "+when, func() bool { return slices.Contains(strings.Fields(r.vsctl("list-ports", "br-int")), host) })
		r.ok("CHECK", "1.1.0", s, previous)
	}
	r.vsctl("del-port", host)
	back("while the server runs")
	// The server puts no pod on a bridge that forwards without flows.
	r.vsctl("set-fail-mode", "br-int", "standalone", "--", "del-port", host)
	eventually.True(r, "the log says why not", func() bool {
		log, err := os.ReadFile(filepath.Join(r.dir, "log"))
		return err == nil && strings.Contains(string(log), "cannot be restored yet") && strings.Contains(string(log), "fail_mode")
	})
	if got := r.vsctl("list-ports", "br-int"); strings.Contains(got, host) {
		t.Errorf("on a standalone bridge: %s", got)
	}
	r.vsctl("set-fail-mode", "br-int", "secure")
	back("on a secure bridge again")
	r.stop(syscall.SIGKILL)
	r.vsctl("del-port", host)
	r.start()
	back("after a restart")
	r.ok("DEL", "1.1.0", s, nil)
	records := filepath.Join(r.dir, "run", "attachments")
	eventually.True(r, "the record is gone", func() bool {
		left, err := os.ReadDir(records)
		r.must(err)
		return len(left) == 0
	})
	if got := r.left(); got != nothing {
		t.Errorf("after DEL: %s", got)
	}
}
