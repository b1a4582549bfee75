package uplink

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/internal/namespace"
)

// TestServersPushOverMasqueradedConnections has a server send far more than the
// client's window, as it was before it was scaled, over a connection that is
// masqueraded by addresses that move meanwhile: connection tracking has to take it.
func TestServersPushOverMasqueradedConnections(t *testing.T) {
	u := inNamespace(t)
	server := behindBoth(t)
	rules := "table ip t { chain c { type nat hook postrouting priority 100; ip saddr 10.5.5.5 masquerade fully-random; }; }"
	if out, err := exec.Command("nft", rules).CombinedOutput(); err != nil {
		t.Skipf("nft: %v: %s", err, out)
	}
	// The namespace is the thread's: the socket has to be made here.
	client, err := net.DialTCP("tcp", &net.TCPAddr{IP: net.IPv4(10, 5, 5, 5)}, &net.TCPAddr{IP: net.IPv4(192, 168, 77, 1), Port: 443})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	push := func(when string) {
		t.Helper()
		const size = 1 << 20
		go func() { _, _ = conn.Write(make([]byte, size)) }()
		if err := client.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if n, err := io.ReadFull(client, make([]byte, size)); err != nil {
			t.Fatalf("%s: after %d bytes: %v", when, n, err)
		}
	}
	push("at first")
	for range 2 {
		if _, err := u.Move("up0", "phy0", netip.Addr{}); err != nil {
			t.Fatal(err)
		}
		push("moved")
		if _, err := u.Restore("phy0"); err != nil {
			t.Fatal(err)
		}
		push("restored")
	}
}

// behindBoth puts a server behind the far ends of both interfaces, which have one MAC
// address, as uplink and bridge do.
func behindBoth(t *testing.T) net.Listener {
	t.Helper()
	name := fmt.Sprintf("flx-push-%d", os.Getpid())
	far, err := namespace.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		far.Close()
		if err := namespace.Delete(name); err != nil {
			t.Error(err)
		}
	})
	up, err := netlink.LinkByName("up0")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"link set far0 netns " + name, "link set far1 netns " + name, "link set phy0 address " + up.Attrs().HardwareAddr.String(),
		"-n " + name + " link add br0 type bridge", "-n " + name + " addr add 192.168.77.1/24 dev br0", "-n " + name + " link set br0 up",
		"-n " + name + " link set far0 master br0 up", "-n " + name + " link set far1 master br0 up",
		"link set lo up", "addr add 10.5.5.5/32 dev lo",
	} {
		ip(t, line)
	}
	var server net.Listener
	if err := far.Do(func() (err error) { server, err = net.Listen("tcp", "192.168.77.1:443"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return server
}
