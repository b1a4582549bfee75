package conntrack

import (
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"
)

// A Hold keeps tracking through a flush of the ruleset, and ends with its socket.
func TestHold(t *testing.T) {
	k := open(t)
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip(err)
	}
	run(t, "ip", "link", "set", "lo", "up")
	if tracked(t, k, "127.0.0.1", 4000) {
		t.Fatal("connections are tracked in a fresh namespace: the test shows nothing")
	}
	hold, err := HoldTracking(0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := HoldTracking(0); !errors.Is(err, ErrHeld) {
		t.Errorf("a second hold: %v, want %v", err, ErrHeld)
	}
	run(t, "nft", "add", "table", "inet", "another")
	run(t, "nft", "flush", "ruleset")
	if out := run(t, "nft", "list", "tables"); strings.Contains(out, "another") {
		t.Errorf("not flushed:\n%s", out)
	}
	for _, address := range []string{"127.0.0.1", "::1"} {
		if !tracked(t, k, address, 4001) {
			t.Errorf("%s: not tracked after a flush of the ruleset", address)
		}
	}
	if err := hold.Close(); err != nil {
		t.Fatal(err)
	}
	if out := run(t, "nft", "list", "ruleset"); out != "" {
		t.Errorf("left after Close:\n%s", out)
	}
	if tracked(t, k, "127.0.0.1", 4002) {
		t.Error("still tracked after Close")
	}
}

// tracked reports whether a datagram to the address makes an entry.
func tracked(t *testing.T, k *Kernel, to string, port uint16) bool {
	t.Helper()
	c, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: net.ParseIP(to), Port: int(port)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, e := range dump(t, k) {
		if e.Original.DstPort == port && e.Original.Dst.String() == to {
			return true
		}
	}
	return false
}
