package hostnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/test/eventually"
)

// addressLog records the updates of a WatchAddresses.
type addressLog struct {
	mu    sync.Mutex
	lists []string
}

func (l *addressLog) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string{}, l.lists...)
}

func (l *addressLog) last() string {
	if all := l.all(); len(all) > 0 {
		return all[len(all)-1]
	}
	return "nothing"
}

func (l *addressLog) want(t *testing.T, what string, addresses ...string) {
	t.Helper()
	want := strings.Join(addresses, " ")
	eventually.True(t, what, func() bool { return l.last() == want }, func() string { return fmt.Sprintf("addresses are %q, want %q", l.last(), want) })
}

// reach waits until as many lists have been reported.
func (l *addressLog) reach(t *testing.T, what string, lists int) {
	t.Helper()
	eventually.True(t, fmt.Sprintf("%s: %d lists", what, lists), func() bool { return len(l.all()) >= lists })
}

// watchAddresses watches this thread's namespace until the test ends.
func watchAddresses(t *testing.T) *addressLog {
	t.Helper()
	ns, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	l := &addressLog{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		// Not unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		if err := unix.Setns(int(ns), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- WatchAddresses(ctx, func() string { return "uplink0" }, func(list []netip.Addr, _ []netip.Prefix) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.lists = append(l.lists, strings.Trim(fmt.Sprint(list), "[]"))
		}, func(err error) { t.Logf("failed: %v", err) })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended with %v", err)
		}
		_ = ns.Close()
	})
	return l
}

// ip runs the tool of that name in this thread's namespace.
func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// The list has the kernel's local addresses of all interfaces.
func TestAddressesFollowInterfaces(t *testing.T) {
	inNamespace(t)
	ip(t, "link", "set", "lo", "up")
	l := watchAddresses(t)
	l.want(t, "at the start", "192.168.50.11", "fd00:10::c0a8:320b")
	ip(t, "address", "add", "10.96.0.1/32", "dev", "lo")
	ip(t, "address", "add", "169.254.25.10/32", "dev", "uplink0")
	l.want(t, "an address of the loopback interface, and a link-local one of IPv4", "10.96.0.1", "169.254.25.10", "192.168.50.11", "fd00:10::c0a8:320b")
	ip(t, "address", "del", "169.254.25.10/32", "dev", "uplink0")
	ip(t, "address", "add", "10.0.0.1", "peer", "10.0.0.2", "dev", "uplink0")
	l.want(t, "a point-to-point address, of which the other end is not ours", "10.0.0.1", "10.96.0.1", "192.168.50.11", "fd00:10::c0a8:320b")
	ip(t, "address", "del", "10.0.0.1", "peer", "10.0.0.2", "dev", "uplink0")
	ip(t, "address", "add", "10.10.0.1/24", "dev", "flx-gw0")
	ip(t, "address", "add", "192.168.50.200/24", "dev", "uplink0")
	l.want(t, "an address of an interface that is down", "10.96.0.1", "192.168.50.11", "192.168.50.200", "fd00:10::c0a8:320b")
	ip(t, "link", "set", "flx-gw0", "up")
	l.want(t, "the interface comes up", "10.10.0.1", "10.96.0.1", "192.168.50.11", "192.168.50.200", "fd00:10::c0a8:320b")
	ip(t, "link", "set", "flx-gw0", "down")
	l.want(t, "and goes down", "10.96.0.1", "192.168.50.11", "192.168.50.200", "fd00:10::c0a8:320b")
	ip(t, "link", "del", "uplink0")
	l.want(t, "an interface is gone", "10.96.0.1")
}

// An address that two interfaces have is reported again when one of them loses it.
func TestAddressOfTwoInterfaces(t *testing.T) {
	inNamespace(t)
	ip(t, "link", "set", "flx-gw0", "up")
	l := watchAddresses(t)
	l.want(t, "at the start", "192.168.50.11", "fd00:10::c0a8:320b")
	count := 1
	for _, verb := range []string{"add", "del"} {
		ip(t, "address", verb, "192.168.50.11/32", "dev", "flx-gw0")
		count++
		l.reach(t, "after "+verb, count)
		l.want(t, verb, "192.168.50.11", "fd00:10::c0a8:320b")
	}
}

// A route that another program adds to the uplink is reported, although the addresses stay: it belongs on the bridge.
func TestRouteOfUplink(t *testing.T) {
	inNamespace(t)
	ip(t, "link", "set", "flx-gw0", "up")
	l := watchAddresses(t)
	l.want(t, "at the start", "192.168.50.11", "fd00:10::c0a8:320b")
	count := 1
	for _, route := range []string{
		"192.168.50.0/24 dev uplink0 proto kernel scope link src 192.168.50.11 metric 102", // as NetworkManager and dhcpcd write it
		"fd00:10::c0a8:3200/120 dev uplink0 proto kernel metric 102",
		"default via 192.168.50.1 dev uplink0 metric 100",
	} {
		ip(t, strings.Fields("route add 10.77.0.0/16 dev flx-gw0")...) // not of the uplink
		ip(t, append(strings.Fields("route add"), strings.Fields(route)...)...)
		count++
		l.reach(t, "after "+route, count)
		ip(t, strings.Fields("route del 10.77.0.0/16 dev flx-gw0")...)
	}
	if n := len(l.all()); n != count {
		t.Errorf("%d lists, want %d", n, count)
	}
}

// After changes that are faster than the reader, all addresses are known in the end, and they
// are not reported one by one.
func TestAddressesUnderStorm(t *testing.T) {
	inNamespace(t)
	l := watchAddresses(t)
	l.want(t, "at the start", "192.168.50.11", "fd00:10::c0a8:320b")
	const addresses = 3000
	var script strings.Builder
	for i := range addresses {
		fmt.Fprintf(&script, "address add 10.%d.%d.%d/32 dev uplink0\n", 96+i>>16, i>>8&0xff, i&0xff)
	}
	file := t.TempDir() + "/batch"
	if err := os.WriteFile(file, []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	ip(t, "-batch", file)
	eventually.True(t, "all addresses are known", func() bool { return strings.Count(l.last(), " ") == addresses+1 })
	if n := len(l.all()); n > addresses/10 {
		t.Errorf("%d lists for %d addresses", n, addresses)
	}
	if all, err := netlink.AddrList(nil, netlink.FAMILY_V4); err != nil || len(all) != addresses+1 {
		t.Errorf("the kernel has %d addresses, %v", len(all), err)
	}
}
