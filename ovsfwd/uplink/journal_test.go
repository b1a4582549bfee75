package uplink

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// TestTwoMoversAtOnce: the agent moves the addresses to the bridge while the supervisor moves them back,
// again and again. No route is lost. Many routes make the moves overlap.
func TestTwoMoversAtOnce(t *testing.T) {
	u := inNamespace(t)
	const more = 50
	for i := range more {
		ip(t, fmt.Sprintf("route add 10.98.0.%d via 192.168.77.3 dev up0", i))
	}
	u.moves(t, Moved{Addresses: 2, Routes: 3 + more})
	here, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	both := []func() error{
		func() error { _, err := u.Move("up0", "phy0", own); return err },
		func() error { _, err := u.Restore("phy0"); return err },
	}
	for round := range 30 {
		var movers sync.WaitGroup
		start := make(chan struct{})
		for _, do := range both {
			movers.Go(func() {
				// Never unlocked: the thread ends with the goroutine.
				runtime.LockOSThread()
				if err := netns.Set(here); err != nil {
					t.Error(err)
					return
				}
				<-start
				if err := do(); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		close(start)
		movers.Wait()
		routesAreThere(t)
		if n := strings.Count(ip(t, "-4 route show root 10.98.0.0/24"), "via 192.168.77.3 dev "); n != more {
			t.Errorf("round %d: %d of %d routes are there", round, n, more)
		}
		if t.Failed() {
			return
		}
	}
}

// routesAreThere checks that the routes of inNamespace are on one of the two interfaces.
func routesAreThere(t *testing.T) {
	t.Helper()
	for command, want := range map[string]string{
		"-4 route show default":         "via 192.168.77.1 dev ",
		"-4 route show 10.99.0.0/16":    "via 192.168.77.2 dev ",
		"-4 route show 192.168.77.0/24": "dev ",
		"-6 route show default":         "via fd77::1 dev ",
		"-6 route show fd77::/64":       "dev ",
	} {
		if out := ip(t, command); !strings.Contains(out, want) {
			t.Errorf("ip %s: no %q in %q", command, want, out)
		}
	}
}

// newBridge replaces the bridge's port by another one of that name.
func newBridge(t *testing.T) {
	t.Helper()
	ip(t, "link del phy0")
	ip(t, "link add phy0 type veth peer name far1")
	ip(t, "link set far1 up")
}

// TestBridgeIsRemoved: another program removes the bridge that has the node's routes. The kernel deletes
// them. They come back on the uplink, or on the new bridge.
func TestBridgeIsRemoved(t *testing.T) {
	u := inNamespace(t)
	u.moves(t, Moved{Addresses: 2, Routes: 3})
	ip(t, "link del phy0")
	if abandoned, err := u.Abandoned("phy0"); !abandoned || err != nil {
		t.Errorf("without a bridge: abandoned %v, %v", abandoned, err)
	}
	if back, err := u.Rescue("phy0"); err != nil || back != (Moved{Restored: 5}) {
		t.Errorf("%+v, %v", back, err)
	}
	routesAreThere(t)
	if shielded(t, "up0") {
		t.Error("the host does not listen to the uplink")
	}
	if again, err := u.Rescue("phy0"); err != nil || again != (Moved{}) {
		t.Errorf("second time: %+v, %v", again, err)
	}
	ip(t, "link add phy0 type veth peer name far1")
	ip(t, "link set far1 up")
	u.moves(t, Moved{Addresses: 2, Routes: 3})
	checkMoved(t)

	newBridge(t)
	u.moves(t, Moved{Addresses: 2, Routes: 3, Restored: 5})
	checkMoved(t)
}

// TestBridgeIsSetDown: the kernel deletes the IPv4 routes of an interface that another program sets down.
func TestBridgeIsSetDown(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(*testing.T, In)
	}{
		{"Move", func(t *testing.T, u In) {
			if _, err := u.Move("up0", "phy0", own); err != nil {
				t.Fatal(err)
			}
			checkMoved(t)
		}},
		{"Restore", func(t *testing.T, u In) {
			if _, err := u.Restore("phy0"); err != nil {
				t.Fatal(err)
			}
			routesAreThere(t)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := inNamespace(t)
			u.moves(t, Moved{Addresses: 2, Routes: 3})
			ip(t, "link set phy0 down")
			c.then(t, u)
		})
	}
}

// TestDeletedRouteStaysDeleted: the journal brings back no route that another program deleted, and none
// that another program made anew.
func TestDeletedRouteStaysDeleted(t *testing.T) {
	u := inNamespace(t)
	u.moves(t, Moved{Addresses: 2, Routes: 3})
	ip(t, "route del 10.99.0.0/16")
	ip(t, "route replace default via 192.168.77.7 dev phy0")
	u.moves(t, Moved{})
	newBridge(t)
	u.moves(t, Moved{Addresses: 2, Routes: 2, Restored: 4})
	if out := ip(t, "-4 route show 10.99.0.0/16"); out != "" {
		t.Errorf("a deleted route is back: %s", out)
	}
	ip(t, "link del phy0")
	ip(t, "route add 192.168.77.0/24 dev up0 src 192.168.77.100")
	ip(t, "route add default via 192.168.77.9 dev up0")
	if _, err := u.Rescue("phy0"); err != nil {
		t.Fatal(err)
	}
	if out := ip(t, "-4 route show default"); !strings.Contains(out, "via 192.168.77.9 ") || strings.Contains(out, "77.7") {
		t.Errorf("another program's default route: %s", out)
	}
}

// TestJournalOfAnotherUplink: routes of an uplink that was made anew, or of an earlier boot, are out of
// date. A damaged journal counts as missing.
func TestJournalOfAnotherUplink(t *testing.T) {
	for name, change := range map[string]func(*testing.T, In){
		"uplink made anew": func(t *testing.T, _ In) {
			ip(t, "link del up0")
			ip(t, "link add up0 index 4242 type veth peer name far0")
		},
		"another boot": func(t *testing.T, u In) {
			rewrite(t, u, func(content string) string { return strings.Replace(content, `{"boot":"`, `{"boot":"x`, 1) })
		},
		"damaged": func(t *testing.T, u In) {
			rewrite(t, u, func(content string) string { return content[:len(content)/2] })
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := inNamespace(t)
			u.moves(t, Moved{Addresses: 2, Routes: 3})
			ip(t, "link del phy0")
			change(t, u)
			if abandoned, err := u.Abandoned("phy0"); abandoned || err != nil {
				t.Errorf("abandoned %v, %v", abandoned, err)
			}
			if back, err := u.Restore("phy0"); err != nil || back != (Moved{}) {
				t.Errorf("%+v, %v", back, err)
			}
		})
	}
}

func rewrite(t *testing.T, u In, change func(string) string) {
	t.Helper()
	content, err := os.ReadFile(u.file(journalFile))
	if err == nil {
		err = os.WriteFile(u.file(journalFile), []byte(change(string(content))), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestReplayIsResumed: a replay that was cut off after each of its routes goes on.
func TestReplayIsResumed(t *testing.T) {
	for done := range 5 {
		u := inNamespace(t)
		u.moves(t, Moved{Addresses: 2, Routes: 3})
		newBridge(t)
		j, link, err := u.readJournal()
		if err != nil || link == nil || len(j.Routes) != 5 {
			t.Fatalf("%d routes, %v, %v", len(j.Routes), link, err)
		}
		part := j
		part.Routes = append([]netlink.Route{}, j.Routes[:done]...)
		if _, err := replay(part, link); done > 2 && err != nil {
			t.Fatal(err)
		}
		if _, err := u.Move("up0", "phy0", own); err != nil {
			t.Fatal(err)
		}
		checkMoved(t)
	}
}

// TestHeldLockIsNamed: a mover that was stopped holds back the others for a bounded time, and they say so.
func TestHeldLockIsNamed(t *testing.T) {
	u := inNamespace(t)
	err := u.locked(func() error {
		_, err := u.Move("up0", "phy0", own)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "another process has held "+u.file(lockFile)) {
		t.Errorf("%v", err)
	}
	u.moves(t, Moved{Addresses: 2, Routes: 3})
	if err := u.Forget(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(string(u)); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
