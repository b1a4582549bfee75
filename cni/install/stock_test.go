package install

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/internal/sysctl"
)

// TestTunnelPort: another tunnel or program that has the tunnel's port is named, Open vSwitch's own
// device is not.
func TestTunnelPort(t *testing.T) {
	n := newNode(t)
	n.ip("link set lo up")
	n.Tunnel = "vxlan"
	expect := func(want Level, part string) {
		t.Helper()
		if level, detail := n.tunnelPort(t.Context()); level != want || !strings.Contains(detail, part) {
			t.Errorf("%s: %s; want %s: %s", level, detail, want, part)
		}
	}
	expect(Good, "no other tunnel has UDP port 4789")

	n.ip("link add flannel.1 type vxlan id 1 dstport 4789 local 127.0.0.1")
	expect(Missing, "the interface flannel.1 (vxlan), of another CNI or an administrator, has UDP port 4789")
	n.Tunnel = "geneve"
	expect(Good, "6081")
	n.Tunnel = ""
	expect(Good, "no UDP port is needed")
	n.ip("link del flannel.1")

	n.Tunnel = "vxlan"
	conn, err := net.ListenPacket("udp", ":4789")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	expect(Missing, "address already in use")
	n.InUse = "system"
	expect(Good, "")
	n.InUse = ""
	n.ip("link add vxlan_sys_4789 type vxlan external dstport 4789")
	expect(Good, "Open vSwitch has UDP port 4789")
}

// TestOtherSwitch: a database of another Open vSwitch that is served is named, one that nobody serves and
// felixlike's own are not.
func TestOtherSwitch(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "db.sock")
	o := Options{OtherSwitch: socket, OVSRunDir: "/run/felixlike/openvswitch", Datapath: "auto"}
	if level, detail := o.otherSwitch(t.Context()); level != Good {
		t.Errorf("nobody serves it: %s %s", level, detail)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if level, detail := o.otherSwitch(t.Context()); level != Missing || !strings.Contains(detail, "systemctl disable --now openvswitch-switch") {
		t.Errorf("served: %s %s", level, detail)
	}
	o.Datapath = "netdev"
	if level, detail := o.otherSwitch(t.Context()); level != Noted {
		t.Errorf("userspace datapath: %s %s", level, detail)
	}
	o.OVSRunDir = filepath.Dir(socket)
	if level, detail := o.otherSwitch(t.Context()); level != Good {
		t.Errorf("own: %s %s", level, detail)
	}
}

// TestTimeouts: a short time-out of idle TCP connections is named.
func TestTimeouts(t *testing.T) {
	n := newNode(t)
	const name = "net/netfilter/nf_conntrack_tcp_timeout_established"
	if err := sysctl.Write(name, "600"); err != nil {
		t.Fatal(err)
	}
	if level, detail := n.timeouts(t.Context()); level != Noted || !strings.Contains(detail, "nf_conntrack_tcp_timeout_established is 600") {
		t.Errorf("600 s: %s %s", level, detail)
	}
	if err := sysctl.Write(name, "86400"); err != nil {
		t.Fatal(err)
	}
	if level, detail := n.timeouts(t.Context()); level != Good {
		t.Errorf("a day: %s %s", level, detail)
	}
}

// TestProblemsOfTheClusterDoNotBlock: an upgrade must not leave a node without an agent because the tunnel's
// port is taken. The finding says it.
func TestProblemsOfTheClusterDoNotBlock(t *testing.T) {
	n := newNode(t)
	n.Tunnel = "vxlan"
	n.ip("link add flannel.1 type vxlan id 1 dstport 4789")
	n.install()
	if got := n.says("tunnel"); !strings.Contains(got, "flannel.1") {
		t.Errorf("says %q", got)
	}
}
