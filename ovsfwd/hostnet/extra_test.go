package hostnet

import (
	"bytes"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// frames opens a socket that receives all frames at an interface.
func frames(t *testing.T, name string) (next func() []byte) {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(bigEndian16(unix.ETH_P_ALL)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(s) })
	if err := unix.Bind(s, &unix.SockaddrLinklayer{Protocol: bigEndian16(unix.ETH_P_ALL), Ifindex: link.Attrs().Index}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		t.Fatal(err)
	}
	return func() []byte {
		b := make([]byte, 2000)
		n, _, err := unix.Recvfrom(s, b, 0)
		if err != nil {
			return nil
		}
		return b[:n]
	}
}

// told reports whether a frame with the content comes within some seconds.
func told(next func() []byte, content []byte) bool {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		frame := next()
		if frame == nil {
			return false
		}
		if bytes.Contains(frame, content) {
			return true
		}
	}
	return false
}

// TestExtraAddresses: Apply adds the addresses to the interface with the node's own address, and announces them to neighbours. A second Apply writes
// nothing. A later process removes the addresses that it does not want, but none of another program.
func TestExtraAddresses(t *testing.T) {
	inNamespace(t)
	node := []netip.Addr{netip.MustParseAddr("192.168.50.11"), netip.MustParseAddr("fd00:10::c0a8:320b")}
	v4, v6, foreign := netip.MustParseAddr("192.168.50.100"), netip.MustParseAddr("fd00:10::c0a8:3264"), netip.MustParseAddr("192.168.50.101")
	list := func() string {
		out, err := exec.Command("ip", "-o", "address", "show", "dev", "uplink0").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if out, err := exec.Command("ip", "address", "add", foreign.String()+"/32", "dev", "uplink0").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	link, err := netlink.LinkByName("uplink0")
	if err != nil {
		t.Fatal(err)
	}
	next := frames(t, "uplink0-p")
	a := &Addresses{}
	writes, err := a.Apply([]netip.Addr{v4, foreign, v6}, node)
	if err != nil || writes != 2 {
		t.Fatalf("%d writes, %v", writes, err)
	}
	mac := link.Attrs().HardwareAddr
	if !told(next, append(append([]byte{0, 1}, mac...), v4.AsSlice()...)) { // operation, sender
		t.Error("no gratuitous ARP request")
	}
	next = frames(t, "uplink0-p")
	if _, err := (&Addresses{}).Apply([]netip.Addr{v4, foreign, v6}, node); err != nil { // a new process tells them again
		t.Fatal(err)
	}
	if !told(next, append(append(v6.AsSlice(), 2, 1), mac...)) { // target, option
		t.Error("no unsolicited neighbour advertisement")
	}
	for _, want := range []string{v4.String() + "/32", v6.String() + "/128", foreign.String() + "/32"} {
		if !strings.Contains(list(), want) {
			t.Errorf("no %s among\n%s", want, list())
		}
	}
	if writes, err := a.Apply([]netip.Addr{v4, foreign, v6}, node); err != nil || writes != 0 {
		t.Errorf("again: %d writes, %v", writes, err)
	}
	// The host's own packets keep the node's address.
	for to, from := range map[string]string{"192.168.50.99": "192.168.50.11", "fd00:10::c0a8:3299": "fd00:10::c0a8:320b"} {
		out, err := exec.Command("ip", "route", "get", to).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "src "+from+" ") {
			t.Errorf("the source to %s: %s, %v", to, out, err)
		}
	}
	restarted := &Addresses{}
	if writes, err := restarted.Apply([]netip.Addr{v6}, node); err != nil || writes != 1 || strings.Contains(list(), v4.String()+"/32") {
		t.Errorf("after a restart: %d writes, %v\n%s", writes, err, list())
	}
	if writes, err := (&Addresses{}).Apply(nil, nil); err != nil || writes != 1 {
		t.Errorf("removal: %d writes, %v", writes, err)
	}
	if left := list(); strings.Contains(left, v6.String()+"/128") || !strings.Contains(left, foreign.String()) || !strings.Contains(left, "192.168.50.11/24") {
		t.Errorf("left after removal:\n%s", left)
	}
	if _, err := restarted.Apply([]netip.Addr{v4}, []netip.Addr{netip.MustParseAddr("192.0.2.1")}); err == nil || !strings.Contains(err.Error(), "no interface has an address of this node") {
		t.Errorf("without the node's address: %v", err)
	}
}
