package hostnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/backoff"
	"github.com/felixlike/felixlike/test/stopwatch"
)

// watch runs Watch in this thread's namespace until the test ends, and returns a channel
// with an element for each call of changed. It returns when Watch listens.
func watch(t *testing.T, r *Reconciler) <-chan struct{} {
	t.Helper()
	ns, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	calls := make(chan struct{}, 1000)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		// Not unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		if err := unix.Setns(int(ns), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- r.Watch(ctx, func() { calls <- struct{}{} })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended with %v", err)
		}
		_ = ns.Close()
	})
	called(t, "the start", calls) // changes before it listened
	if did, err := r.Apply(t.Context()); err != nil || did.Writes != 0 {
		t.Fatalf("after the start: %+v, %v", did, err)
	}
	return calls
}

// called waits for a call.
func called(t *testing.T, what string, calls <-chan struct{}) {
	t.Helper()
	select {
	case <-calls:
	case <-time.After(20 * time.Second):
		t.Fatalf("Watch is silent after %s", what)
	}
}

// tampers are foreign changes of the host network, each with what its repairs are to say.
func tampers() []struct{ name, command, want string } {
	return []struct{ name, command, want string }{
		{"link down", "ip link set flx-gw0 down", "link flx-gw0: down; missing with it: "},
		{"mtu", "ip link set flx-gw0 mtu 1300", "link flx-gw0: mtu 1300 instead of 1450"},
		{"address removed", "ip address del 10.10.0.1/32 dev flx-gw0", "address 10.10.0.1/32: missing"},
		{"address of IPv6 removed", "ip address del fd00:10::a0a:1/120 dev flx-gw0", "address fd00:10::a0a:1/120: missing"},
		{"address added", "ip address add 10.77.0.1/24 dev flx-gw0", "address 10.77.0.1/24: foreign"},
		{"address with a route of its prefix", "ip address del fd00:10::a0a:1/120 dev flx-gw0; ip address add fd00:10::a0a:1/120 dev flx-gw0", "address fd00:10::a0a:1/120: with a route of its prefix"},
		{"route to a pod removed", "ip route del 10.10.0.5/32", "route 10.10.0.5/32: missing"},
		{"route to a pod of IPv6 removed", "ip -6 route del fd00:10::a0a:5/128", "route fd00:10::a0a:5/128: missing"},
		{"route of the prefix removed", "ip route del unreachable 10.10.0.0/24", "route 10.10.0.0/24: missing"},
		{"route of the prefix of IPv6 removed", "ip -6 route del unreachable fd00:10::a0a:0/120", "route fd00:10::a0a:0/120: missing"},
		{"route removed", "ip route del 10.10.1.0/24", "route 10.10.1.0/24: missing"},
		{"route of IPv6 removed", "ip -6 route del fd00:10::a0a:100/120", "route fd00:10::a0a:100/120: missing"},
		{"route changed", "ip route change 10.10.1.0/24 via 10.10.0.9 dev flx-gw0 onlink proto 208", "route 10.10.1.0/24: changed"},
		{"route to a peer removed", "ip route del 192.168.50.12 table 20800", "route 192.168.50.12/32 table 20800: missing"},
		{"route added", "ip route add 10.66.0.0/24 dev flx-gw0 proto 208", "route 10.66.0.0/24: foreign"},
		{"routes flushed", "ip route flush proto 208", "route 10.10.1.0/24: missing"},
		{"rule removed", "ip rule del priority 20800", "rule 20800 of IPv4: missing"},
		{"rule of IPv6 removed", "ip -6 rule del priority 20800", "rule 20800 of IPv6: missing"},
		{"rule added", "ip rule add priority 20800 table 20800", "rule 20800 of IPv4: foreign"},
		{"neighbour removed", "ip neighbour del 10.10.0.5 dev flx-gw0", "neighbour 10.10.0.5: missing"},
		{"neighbour changed", "ip neighbour replace 10.10.0.5 lladdr 02:00:00:00:00:66 dev flx-gw0 nud permanent", "neighbour 10.10.0.5: MAC address 02:00:00:00:00:66"},
		{"neighbours flushed", "ip neighbour flush dev flx-gw0 nud all", "neighbour 10.10.1.1: missing"},
		{"neighbour added", "ip neighbour add 10.10.0.77 lladdr 02:00:00:00:00:77 dev flx-gw0 nud permanent", "neighbour 10.10.0.77: foreign"},
		{"forwarding", "sysctl -qw net.ipv4.ip_forward=0", "sysctl net.ipv4.ip_forward: 0 instead of 1"},
		{"forwarding of IPv6", "sysctl -qw net.ipv6.conf.all.forwarding=0", "sysctl net.ipv6.conf.all.forwarding: 0 instead of 1"},
		{"filter", "sysctl -qw net.ipv4.conf.flx-gw0.rp_filter=1", "sysctl net.ipv4.conf.flx-gw0.rp_filter: 1 instead of 2"},
		{"a setting without a notification", "sysctl -qw net.ipv4.conf.flx-gw0.arp_announce=0", "sysctl net.ipv4.conf.flx-gw0.arp_announce: 0 instead of 2"},
		{"the node's address came and went", "ip address del 192.168.50.11/24 dev uplink0; ip address add 192.168.50.11/24 dev uplink0", "route 10.10.1.0/24: missing"},
	}
}

// Every foreign change is noticed within a second, repaired, and listed.
func TestWatchNoticesForeignChanges(t *testing.T) {
	inNamespace(t)
	r := NewReconciler()
	apply(t, r, testState())
	calls := watch(t, r)
	for _, c := range tampers() {
		// One change after the other is no fight.
		noFight(r)
		if out, err := exec.Command("sh", "-c", c.command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", c.command, err, out)
		}
		watch, text := stopwatch.Start(t), ""
		for !strings.Contains(text, c.want) {
			called(t, c.name+", repaired "+text, calls)
			did, err := r.Apply(t.Context())
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			text += repairsText(did)
		}
		took := watch.Lap(t)
		t.Logf("%-35s repaired after %s", c.name, took)
		if took.Net() > 2*time.Second {
			t.Errorf("%s: repaired after %s", c.name, took)
		}
		if n := apply(t, NewReconciler(), testState()); n != 0 {
			t.Errorf("%s: %d differences are left", c.name, n)
		}
	}
	settle(t, r, calls)
	if text := r.Problem(); text != "" {
		t.Errorf("a problem although everything is repaired: %s", text)
	}
}

// settle applies until Watch calls no more: notifications may come while an Apply reads.
// It waits longer than the pause between two calls.
func settle(t *testing.T, r *Reconciler, calls <-chan struct{}) {
	t.Helper()
	for {
		select {
		case <-calls:
			if _, err := r.Apply(t.Context()); err != nil {
				t.Fatal(err)
			}
		case <-time.After(backoff.LongestContest + 2*settingsPoll):
			return
		}
	}
}

func repairsText(did Result) string {
	var b strings.Builder
	for _, r := range did.Repaired {
		fmt.Fprintf(&b, "%s %s: %s\n", r.Object, r.Name, r.What)
	}
	return b.String()
}

// What Apply writes is no foreign change, and so are the neighbours and routes of others.
func TestWatchIgnoresOwnWritesAndOthers(t *testing.T) {
	inNamespace(t)
	r := NewReconciler()
	apply(t, r, testState())
	calls := watch(t, r)
	noFight(r)
	for i := range 10 {
		s := testState()
		s.Pods[netip.AddrFrom4([4]byte{10, 10, 0, byte(100 + i%3)})] = net.HardwareAddr{2, 0, 0, 0, 1, byte(i)}
		if i%2 == 0 {
			s.Peers = nil
			s.GatewayAddresses = s.GatewayAddresses[:1]
		}
		r.SetState(s)
		did, err := r.Apply(t.Context())
		if err != nil || len(did.Repaired) > 0 {
			t.Fatalf("apply %d: %+v, %v", i, did, err)
		}
		hearsOnly(t, r, calls)
	}
	for _, args := range []string{
		"route add 203.0.113.0/24 dev uplink0", "route add 10.10.1.0/25 dev uplink0", "neighbour add 192.168.50.99 lladdr 02:00:00:00:00:99 dev uplink0 nud permanent",
		"rule add priority 77 table 77", "address add 192.168.50.200/24 dev uplink0", "link add others0 type veth peer name others1", "link set others0 up",
	} {
		ip(t, strings.Fields(args)...)
	}
	hearsOnly(t, r, calls)
}

// hearsOnly makes a change that concerns us, which comes behind all notifications of
// before, and checks that Watch noticed nothing else.
func hearsOnly(t *testing.T, r *Reconciler, calls <-chan struct{}) {
	t.Helper()
	ip(t, "rule", "del", "priority", "20800")
	called(t, "the rule was removed", calls)
	r.drift.mu.Lock()
	names := strings.Join(r.drift.names, ", ")
	r.drift.mu.Unlock()
	if names != "rule 20800 of IPv4" {
		t.Errorf("Watch noticed %s", names)
	}
	if _, err := r.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	noFight(r)
}

// noFight has the next notice come without a pause.
func noFight(r *Reconciler) {
	r.drift.mu.Lock()
	defer r.drift.mu.Unlock()
	r.drift.contest = backoff.Contest{}
}

// While the node's address is gone the routes that have it as their source cannot be added.
// Its return is noticed.
func TestReturnOfTheNodesAddressIsNoticed(t *testing.T) {
	inNamespace(t)
	r := NewReconciler()
	apply(t, r, testState())
	calls := watch(t, r)
	ip(t, "address", "del", "192.168.50.11/24", "dev", "uplink0")
	called(t, "the end of the node's address", calls)
	if _, err := r.Apply(t.Context()); err == nil {
		t.Fatal("routes were added whose source is no address of the node")
	}
	for quiet := false; !quiet; {
		select {
		case <-calls:
		case <-time.After(backoff.LongestContest + 2*settingsPoll):
			quiet = true
		}
	}
	noFight(r)
	watch := stopwatch.Start(t)
	ip(t, "address", "add", "192.168.50.11/24", "dev", "uplink0")
	called(t, "the return of the node's address", calls)
	if took := watch.Lap(t); took.Net() > time.Second {
		t.Errorf("noticed after %s", took)
	}
	apply(t, r, testState())
	if n := apply(t, NewReconciler(), testState()); n != 0 {
		t.Errorf("%d differences are left", n)
	}
}

// After lost notifications everything is read.
func TestWatchSurvivesLostNotifications(t *testing.T) {
	inNamespace(t)
	r := NewReconciler()
	apply(t, r, testState())
	calls := watch(t, r)
	// The lock keeps Watch from reading.
	r.drift.mu.Lock()
	ip(t, "route", "add", "203.0.113.0/24", "dev", "uplink0")
	link, err := netlink.LinkByName("uplink0")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1 << 14 {
		if err := netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: netOf(netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64, byte(i >> 8), byte(i)}), 32))}); err != nil {
			t.Fatal(err)
		}
	}
	ip(t, "route", "del", "10.10.1.0/24")
	r.drift.mu.Unlock()
	called(t, "lost notifications", calls)
	did, err := r.Apply(t.Context())
	if text := repairsText(did); err != nil || !strings.Contains(text, "route 10.10.1.0/24: missing") {
		t.Errorf("repaired %s, %v", text, err)
	}
}

// A program that undoes every repair gets an answer at most once a second, and after
// five seconds that is a problem. It ends with the program.
func TestFightIsRateLimitedAndNamed(t *testing.T) {
	inNamespace(t)
	r := NewReconciler()
	apply(t, r, testState())
	calls := watch(t, r)
	start := time.Now()
	repaired := 0
	for r.Problem() == "" {
		if time.Since(start) > 20*time.Second {
			t.Fatal("no problem after 20 s")
		}
		// It fails while the route is not there.
		_ = exec.Command("ip", "route", "del", "10.10.1.0/24").Run()
		select {
		case <-calls:
			did, err := r.Apply(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			repaired += len(did.Repaired)
		case <-time.After(10 * time.Millisecond):
		}
	}
	took := time.Since(start)
	if took < tolerated || took > tolerated+2*backoff.LongestContest {
		t.Errorf("a problem after %s, want %s", took, tolerated)
	}
	// Pauses of 100, 200, 400 and 800 ms, and then of a second.
	if most := 6 + int(took/backoff.LongestContest); repaired == 0 || repaired > most {
		t.Errorf("%d repairs in %s, want at most %d", repaired, took, most)
	}
	text := r.Problem()
	if !strings.Contains(text, "other programs change route 10.10.1.0/24") {
		t.Errorf("problem: %s", text)
	}
	t.Logf("%d repairs in %s; %s", repaired, took.Round(time.Millisecond), text)
	settle(t, r, calls)
	if text := r.Problem(); text != "" {
		t.Errorf("a problem after the fight: %s", text)
	}
}

// What cannot be repaired becomes a problem that names it, and ends with its cause.
func TestWhatCannotBeRepairedIsNamed(t *testing.T) {
	inNamespace(t)
	r := NewReconciler()
	apply(t, r, testState())
	calls := watch(t, r)
	ip(t, "route", "replace", "10.10.1.0/24", "dev", "uplink0")
	called(t, "the route was replaced", calls)
	if _, err := r.Apply(t.Context()); err == nil {
		t.Fatal("a foreign route is in the way, and there is no error")
	}
	now := time.Now()
	if text := r.drift.problem(now.Add(tolerated - time.Second)); text != "" {
		t.Errorf("a problem before %s: %s", tolerated, text)
	}
	text := r.drift.problem(now.Add(tolerated))
	if !strings.Contains(text, "10.10.1.0/24") || !strings.Contains(text, "file exists") {
		t.Errorf("problem: %q", text)
	}
	ip(t, "route", "del", "10.10.1.0/24")
	called(t, "the foreign route was removed", calls)
	if _, err := r.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text := r.drift.problem(time.Now().Add(2 * tolerated)); text != "" {
		t.Errorf("a problem after the repair: %s", text)
	}
}
