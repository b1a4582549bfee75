package install

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/sysctl"
	"github.com/felixlike/felixlike/ovsfwd/supervisor"
)

// left is what an installation on this node leaves.
func (n *node) left(root string) Leftovers {
	return Leftovers{
		Root: root, BinDir: n.BinDir, ConfDir: n.ConfDir, OVSRunDir: "/run/felixlike/ovs", Bridge: "br-int", Gateway: "flx-gw0",
		Running:        func(context.Context) error { return nil },
		RemoveBackends: func(context.Context) ([]string, error) { return []string{"nftables"}, nil },
	}
}

func (n *node) ip(line string) string {
	n.t.Helper()
	out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("ip %s: %v\n%s", line, err, out)
	}
	return string(out)
}

// links returns the names of the interfaces.
func (n *node) links() []string {
	n.t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		n.t.Fatal(err)
	}
	var names []string
	for _, l := range all {
		names = append(names, l.Name)
	}
	slices.Sort(names)
	return names
}

func TestUninstallLeavesNothing(t *testing.T) {
	n := newNode(t)
	const redirects = "net/ipv4/conf/all/send_redirects"
	if err := sysctl.Write(redirects, "1"); err != nil {
		t.Fatal(err)
	}
	before := n.links()
	root := t.TempDir()
	n.StateDir = filepath.Join(root, stateDir)
	for _, dir := range []string{stateDir + "/ovs", runDir + "/ovs", ipamDir, resultsDir} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.put(n.BinDir, "portmap", "the distribution's")
	n.put(n.ConfDir, "10-other.conflist", "{}")
	n.install()
	// A configuration that an agent with exclusive renamed.
	n.put(n.ConfDir, "00-first.conflist.felixlike-disabled", "{}")

	// Leftovers of the agent and Open vSwitch, and foreign objects.
	n.put(filepath.Join(root, ipamDir), "10.0.0.2", "sandbox")
	n.put(filepath.Join(root, resultsDir), "felixlike-sandbox-eth0", "{}")
	n.put(filepath.Join(root, resultsDir), "other-sandbox-eth0", "{}")
	n.put(n.BinDir, "bandwidth", "replaced by somebody")
	for _, line := range []string{
		"link add up0 type veth peer name far0", "link set up0 up", "link set far0 up",
		"tuntap add dev flx-gw0 mode tap", "tuntap add dev br-int mode tap", "tuntap add dev ovs-netdev mode tap",
		"tuntap add dev br-phy mode tap",
		"link add fx-a type veth peer name pod-a", "link set fx-a alias felixlike:sandbox/eth0",
		"link add fx-theirs type veth peer name pod-b",
		"rule add iif flx-gw0 lookup 20800 priority 20800",
		"addr add 192.0.2.9/24 dev br-phy", "link set br-phy up",
	} {
		n.ip(line)
	}
	if out, err := exec.Command("ip", "link", "set", "br-phy", "alias", "felixlike: stands for up0").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := sysctl.Write(redirects, "0"); err != nil {
		t.Fatal(err)
	}

	for range 2 { // it may be repeated
		if err := n.left(root).Remove(t.Context(), func(f Finding) { t.Log(f) }); err != nil {
			t.Fatal(err)
		}
	}
	want := append(slices.Clone(before), "far0", "fx-theirs", "pod-b", "up0")
	slices.Sort(want)
	if got := n.links(); !slices.Equal(got, want) {
		t.Errorf("interfaces %v, want %v", got, want)
	}
	if out := n.ip("address show up0"); !strings.Contains(out, "192.0.2.9/24") {
		t.Errorf("the node's address is not on the uplink:\n%s", out)
	}
	if out := n.ip("rule"); strings.Contains(out, "20800") {
		t.Errorf("rules that are left:\n%s", out)
	}
	if value, err := sysctl.Read(redirects); err != nil || value != "1" {
		t.Errorf("%s = %s, %v", redirects, value, err)
	}
	n.expect(n.BinDir, "bandwidth=replaced by somebody", "portmap=the distribution's")
	n.expect(n.ConfDir, "00-first.conflist={}", "10-other.conflist={}")
	n.expect(filepath.Join(root, resultsDir), "other-sandbox-eth0={}")
	for _, path := range []string{runDir, stateDir, filepath.Dir(ipamDir)} {
		if _, err := os.Stat(filepath.Join(root, path)); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
}

// TestUninstallRepeatedAfterFailure makes steps fail once: the record stays, and the next
// try removes everything.
func TestUninstallRepeatedAfterFailure(t *testing.T) {
	n := newNode(t)
	root := t.TempDir()
	n.StateDir = filepath.Join(root, stateDir)
	for _, dir := range []string{stateDir, runDir + "/ovs", ipamDir} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.install()
	mark := filepath.Join(root, runDir, "ovs", supervisor.OwnerFile)
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// The kernel's datapath leaves a tunnel device.
	n.ip("link add genev_sys_6081 type veth peer name far1")
	// An unreadable file cannot be compared with the record.
	aside, plugin := n.BinDir+"/aside", n.BinDir+"/felixlike-cni"
	if err := errors.Join(os.Rename(plugin, aside), os.Mkdir(plugin, 0o755)); err != nil {
		t.Fatal(err)
	}
	l := n.left(root)
	l.RemoveBackends = func(context.Context) ([]string, error) { return nil, errors.New("no netlink") }
	n.found = nil
	err := l.Remove(t.Context(), n.report)
	if err == nil || !strings.Contains(err.Error(), "policy: no netlink") || !strings.Contains(err.Error(), "plugins: ") {
		t.Errorf("with steps that fail: %v", err)
	}
	if got := n.says("files"); !strings.HasPrefix(got, Missing.String()) || !strings.Contains(got, "repeat") {
		t.Errorf("of the files it says %q", got)
	}
	for _, path := range []string{mark, filepath.Join(n.StateDir, recordFile), filepath.Join(root, ipamDir)} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("not kept: %v", err)
		}
	}

	if err := errors.Join(os.Remove(plugin), os.Rename(aside, plugin)); err != nil {
		t.Fatal(err)
	}
	n.ip("link add genev_sys_6082 type veth peer name far2")
	n.found = nil
	if err := n.left(root).Remove(t.Context(), n.report); err != nil {
		t.Fatal(err)
	}
	n.expect(n.BinDir)
	n.expect(n.ConfDir)
	if got := n.says("plugins"); !strings.Contains(got, "felixlike-cni") {
		t.Errorf("of the plugins it says %q", got)
	}
	if got := n.says("bridges"); !strings.Contains(got, "genev_sys_6082") {
		t.Errorf("of the bridges it says %q", got)
	}
	for _, path := range []string{runDir, stateDir, ipamDir} {
		if _, err := os.Stat(filepath.Join(root, path)); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
}

func TestUninstallWaitsForTheAgent(t *testing.T) {
	n := newNode(t)
	l := n.left(t.TempDir())
	asked := 0
	l.Running = func(context.Context) error {
		if asked++; asked < 2 {
			return errors.New("it runs")
		}
		return nil
	}
	if err := l.Remove(t.Context(), n.report); err != nil || asked != 2 {
		t.Errorf("asked %d times, %v", asked, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.Running = func(context.Context) error { return errors.New("it runs") }
	n.found = nil
	if err := l.Remove(ctx, n.report); err == nil || !strings.Contains(err.Error(), "delete its DaemonSet first: it runs") || len(n.found) > 0 {
		t.Errorf("%v, %v", err, n.found)
	}
}

// Remove leaves devices alone that a switch uses.
func TestUninstallLeavesServedInterfaces(t *testing.T) {
	n := newNode(t)
	l := n.left(t.TempDir())
	n.ip("tuntap add dev br-int mode tap")
	tun, err := os.OpenFile(tunDevice, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tun.Close()
	request, err := unix.NewIfreq("br-int")
	if err != nil {
		t.Fatal(err)
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(int(tun.Fd()), unix.TUNSETIFF, request); err != nil {
		t.Fatal(err)
	}
	n.ip("link set br-int up")
	if err := l.Remove(t.Context(), n.report); err == nil || !strings.Contains(err.Error(), "br-int is in use") {
		t.Errorf("error %v", err)
	}
	if !slices.Contains(n.links(), "br-int") {
		t.Error("it was removed")
	}
}
