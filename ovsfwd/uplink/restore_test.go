package uplink

import (
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/internal/ethtool"
	"github.com/felixlike/felixlike/internal/sysctl"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
)

// TestRestore moves there and back again and again: the routes are always as they
// were, and the host listens where the addresses are served.
func TestRestore(t *testing.T) {
	u := inNamespace(t)
	looks := func() string {
		// Each interface has a route of its own to link-local addresses.
		return ip(t, "-4 route show") + ip(t, "-6 route show scope global root fd00::/8") + ip(t, "-6 route show default")
	}
	before, moved := looks(), ""
	for round := range 3 {
		if _, err := u.Move("up0", "phy0", own); err != nil {
			t.Fatal(err)
		}
		checkMoved(t)
		if now := looks(); round > 0 && now != moved {
			t.Errorf("moved in round %d:\n%s\nfirst:\n%s", round, now, moved)
		}
		moved = looks()
		if back, err := u.Restore("phy0"); err != nil || back != (Moved{Addresses: 2, Routes: 3}) {
			t.Fatal(back, err)
		}
		if now := looks(); now != before {
			t.Errorf("restored in round %d:\n%s\nat first:\n%s", round, now, before)
		}
		if shielded(t, "up0") {
			t.Error("the host does not listen to the uplink")
		}
	}
	if again, err := u.Restore("phy0"); err != nil || again != (Moved{}) {
		t.Errorf("second time: %+v, %v", again, err)
	}
}

// TestSegments: while a switch reads from it, the uplink merges no segments, and
// does so again afterwards if it did before.
func TestSegments(t *testing.T) {
	for _, before := range []bool{true, false} {
		u := inNamespace(t)
		if err := ethtool.Set("up0", ethtool.GRO, before); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := u.Move("up0", "phy0", own); err != nil {
				t.Fatal(err)
			}
			if merges, err := ethtool.Get("up0", ethtool.GRO); merges || err != nil {
				t.Errorf("the uplink merges segments: %v", err)
			}
		}
		if name, err := StandsFor("phy0"); name != "up0" || err != nil {
			t.Errorf("phy0 stands for %q, %v", name, err)
		}
		if _, err := u.Restore("phy0"); err != nil {
			t.Fatal(err)
		}
		if merges, err := ethtool.Get("up0", ethtool.GRO); merges != before || err != nil {
			t.Errorf("the uplink merges segments: %v, %v; before: %v", merges, err, before)
		}
	}
}

// TestReversePathFilter: while the routes lead to the bridge, the uplink's filter is
// not strict, and as it was afterwards.
func TestReversePathFilter(t *testing.T) {
	for _, c := range []struct{ all, uplink, moved string }{{"0", "1", "2"}, {"1", "0", "2"}, {"0", "0", "0"}, {"2", "1", "1"}} {
		u := inNamespace(t)
		set := func(name, value string) {
			if err := sysctl.Write(filterKey(name), value); err != nil {
				t.Fatal(err)
			}
		}
		check := func(when, want string) {
			t.Helper()
			if have, err := sysctl.Read(filterKey("up0")); have != want || err != nil {
				t.Errorf("%s, all %s, uplink %s: rp_filter %s, %v; want %s", when, c.all, c.uplink, have, err, want)
			}
		}
		set("all", c.all)
		set("up0", c.uplink)
		for range 2 {
			u.moves(t, Moved{Addresses: 2, Routes: 3})
			u.moves(t, Moved{})
			check("moved", c.moved)
			if name, err := StandsFor("phy0"); name != "up0" || err != nil {
				t.Errorf("phy0 stands for %q, %v", name, err)
			}
			if _, err := u.Restore("phy0"); err != nil {
				t.Fatal(err)
			}
			check("restored", c.uplink)
		}
		// A value that another program sets stays.
		u.moves(t, Moved{Addresses: 2, Routes: 3})
		set("up0", "0")
		if _, err := u.Restore("phy0"); err != nil {
			t.Fatal(err)
		}
		check("set by another program", "0")
	}
}

// TestAbandoned: a bridge's port without a carrier, like a tap device without ovs-vswitchd, is
// reported, and nothing moves there.
func TestAbandoned(t *testing.T) {
	u := inNamespace(t)
	if abandoned, err := u.Abandoned("phy0"); abandoned || err != nil {
		t.Errorf("before anything was moved: %v, %v", abandoned, err)
	}
	if _, err := u.Move("up0", "phy0", own); err != nil {
		t.Fatal(err)
	}
	if abandoned, err := u.Abandoned("phy0"); abandoned || err != nil {
		t.Errorf("while it is served: %v, %v", abandoned, err)
	}
	ip(t, "link set far1 down")
	if abandoned, err := u.Abandoned("phy0"); !abandoned || err != nil {
		t.Errorf("without ovs-vswitchd: %v, %v", abandoned, err)
	}
	if _, err := u.Move("up0", "phy0", own); err == nil || !strings.Contains(err.Error(), "no carrier") {
		t.Errorf("moved to a bridge without ovs-vswitchd: %v", err)
	}
	if _, err := In(t.TempDir()).Restore("none0"); err != nil {
		t.Errorf("no bridge: %v", err)
	}
}

// TestMasqueradedConnectionsGoOn has the kernel remember a connection that was
// masqueraded by the uplink's address, there and back, and its packets leave.
func TestMasqueradedConnectionsGoOn(t *testing.T) {
	u := inNamespace(t)
	for _, line := range []string{
		"link set lo up", "addr add 10.5.5.5/32 dev lo", "link set phy0 up",
		"neigh add 192.168.77.1 lladdr 02:00:00:00:00:01 dev up0", "neigh add 192.168.77.1 lladdr 02:00:00:00:00:01 dev phy0",
	} {
		ip(t, line)
	}
	rules := "table ip t { chain c { type nat hook postrouting priority 100; ip saddr 10.5.5.5 masquerade fully-random; }; }"
	if out, err := exec.Command("nft", rules).CombinedOutput(); err != nil {
		t.Skipf("nft: %v: %s", err, out)
	}
	// The namespace is the thread's: the socket has to be made here.
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(10, 5, 5, 5)}, &net.UDPAddr{IP: net.IPv4(192, 168, 77, 1), Port: 53})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	k, err := conntrack.OpenKernel()
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	var first conntrack.Connection
	remembered := func(when string) {
		t.Helper()
		// The kernel deletes the masqueraded connections of a removed address a moment later.
		for range 20 {
			if _, err := conn.Write([]byte{0}); err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			var now conntrack.Connection
			if err := k.Dump(func(c conntrack.Connection) {
				if c.Translated() {
					now = c
				}
			}); err != nil {
				t.Fatal(err)
			}
			if !first.Original.Src.IsValid() {
				first = now
			}
			if now.Original != first.Original || now.Reply != first.Reply || !now.Original.Src.IsValid() {
				t.Fatalf("%s: %s answered by %s, at first %s by %s", when, now.Original, now.Reply, first.Original, first.Reply)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	remembered("at first")
	for range 2 {
		if _, err := u.Move("up0", "phy0", own); err != nil {
			t.Fatal(err)
		}
		remembered("moved")
		if _, err := u.Restore("phy0"); err != nil {
			t.Fatal(err)
		}
		remembered("restored")
	}
}
