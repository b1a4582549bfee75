package hostnet

import (
	"bytes"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	socket "github.com/mdlayher/netlink"
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

// TestExtraAddresses: Apply adds the addresses to the interface with their network, and announces them to neighbours. A second Apply writes
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
	writes, err := a.Apply(Wanted{Always: []netip.Addr{v4, foreign, v6}, Node: node})
	if err != nil || writes != 2 {
		t.Fatalf("%d writes, %v", writes, err)
	}
	mac := link.Attrs().HardwareAddr
	if !told(next, append(append([]byte{0, 1}, mac...), v4.AsSlice()...)) { // operation, sender
		t.Error("no gratuitous ARP request")
	}
	if !told(next, append(append([]byte{0, 1}, mac...), v4.AsSlice()...)) {
		t.Error("no second gratuitous ARP request")
	}
	next = frames(t, "uplink0-p")
	if _, err := (&Addresses{}).Apply(Wanted{Always: []netip.Addr{v4, foreign, v6}, Node: node}); err != nil { // a new process tells them again
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
	if writes, err := a.Apply(Wanted{Always: []netip.Addr{v4, foreign, v6}, Node: node}); err != nil || writes != 0 {
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
	if writes, err := restarted.Apply(Wanted{Always: []netip.Addr{v6}, Node: node}); err != nil || writes != 1 || strings.Contains(list(), v4.String()+"/32") {
		t.Errorf("after a restart: %d writes, %v\n%s", writes, err, list())
	}
	if writes, err := (&Addresses{}).Apply(Wanted{}); err != nil || writes != 1 {
		t.Errorf("removal: %d writes, %v", writes, err)
	}
	if left := list(); strings.Contains(left, v6.String()+"/128") || !strings.Contains(left, foreign.String()) || !strings.Contains(left, "192.168.50.11/24") {
		t.Errorf("left after removal:\n%s", left)
	}
	if _, err := restarted.Apply(Wanted{Always: []netip.Addr{netip.MustParseAddr("203.0.113.1")}, Node: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}); err == nil || !strings.Contains(err.Error(), "no interface has an address of this node") {
		t.Errorf("without the node's address: %v", err)
	}
}

// TestLeasedAddresses: the kernel removes a leased address when its time is over, and another call extends the time. An address that a process before this one
// had stays for its time; it is gone at once when it is released, or is not wanted any more. A copy of the node's address attracts it.
func TestLeasedAddresses(t *testing.T) {
	inNamespace(t)
	node := []netip.Addr{netip.MustParseAddr("192.168.50.11"), netip.MustParseAddr("fd00:10::c0a8:320b")}
	both := []netip.Addr{netip.MustParseAddr("192.168.50.100"), netip.MustParseAddr("fd00:10::c0a8:3264")}
	wanted := Wanted{Leased: both, Node: node}
	list := func() string {
		out, err := exec.Command("ip", "-o", "address", "show").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	has := func() (n int) {
		for _, a := range both {
			n += strings.Count(list(), " "+a.String()+"/")
		}
		return n
	}
	a := &Addresses{}
	apply := func(a *Addresses, w Wanted, writes, want int, when string) {
		t.Helper()
		if did, err := a.Apply(w); err != nil || did != writes || has() != want {
			t.Errorf("%s: %d writes, %v, %d addresses, want %d and %d\n%s", when, did, err, has(), writes, want, list())
		}
	}
	hold := func(a *Addresses, d time.Duration, want int, when string) {
		t.Helper()
		if err := a.Hold(both, time.Now().Add(d)); err != nil || has() != want {
			t.Errorf("%s: %v, %d addresses, want %d\n%s", when, err, has(), want, list())
		}
	}
	apply(a, wanted, 0, 0, "before they are held")
	hold(a, 5*time.Second, 2, "held")
	hold(a, time.Hour, 2, "extended")
	if n := strings.Count(list(), "valid_lft 3599sec") + strings.Count(list(), "valid_lft 3600sec"); n != 2 {
		t.Errorf("%d addresses for an hour:\n%s", n, list())
	}
	apply(a, wanted, 0, 2, "again")
	restarted := &Addresses{}
	hold(restarted, 3*time.Second, 2, "before the first Apply")
	restarted = &Addresses{}
	apply(restarted, wanted, 0, 2, "after a restart")
	if err := restarted.Release(both[0]); err != nil || has() != 1 {
		t.Errorf("released: %v\n%s", err, list())
	}
	apply(restarted, wanted, 0, 1, "after the release")
	apply(restarted, Wanted{Node: node}, 1, 0, "not wanted")
	apply(restarted, wanted, 0, 0, "wanted and not held")
	hold(restarted, 2*time.Second, 2, "for two seconds")
	for began := time.Now(); has() > 0; time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > 2*time.Second+kernelLate {
			t.Fatalf("after %s:\n%s", time.Since(began), list())
		}
	}
	if err := a.Hold(both, time.Now().Add(-time.Second)); err != nil || has() != 0 {
		t.Errorf("held too late: %v\n%s", err, list())
	}
	// From an election to a fixed node, and back.
	hold(restarted, time.Hour, 2, "once more")
	apply(restarted, Wanted{Always: both, Node: node}, 4, 2, "for ever")
	if strings.Contains(list(), "valid_lft 3") {
		t.Errorf("a limit is left:\n%s", list())
	}
	for _, command := range []string{"ip link add bridge0 type veth peer name bridge0-p", "ip link set bridge0 up"} {
		if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	copyOf(t, node[0], "bridge0")
	last := &Addresses{}
	apply(last, wanted, 2, 0, "for ever, and leased now")
	hold(last, time.Hour, 2, "with a copy")
	if out := list(); !strings.Contains(out, "bridge0    inet 192.168.50.100/32") {
		t.Errorf("not at the copy:\n%s", out)
	}
}

// copyOf adds an address to an interface as package uplink does.
func copyOf(t *testing.T, a netip.Addr, name string) {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := socket.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e := extra{addr: a, index: int32(link.Attrs().Index)}
	enc := e.encoder()
	enc.Uint8(ifaProto, CopyProtocol)
	if err := e.write(s, unix.RTM_NEWADDR, socket.Create, enc); err != nil {
		t.Fatal(err)
	}
}

// kernelLate is how much too late the kernel removes an address at most (election.Timing allows for it).
const kernelLate = 2 * time.Second

// TestAddressesOfASecondInterface: the way out is another interface than that of the node's own address. An address comes to the interface whose prefix
// has it, or else to that of the default route, and its neighbours are told there; an address of the node's own network stays on that one.
func TestAddressesOfASecondInterface(t *testing.T) {
	inNamespace(t)
	run := func(commands ...string) {
		t.Helper()
		for _, command := range commands {
			if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", command, err, out)
			}
		}
	}
	run("ip link set lo up", "ip link add eth1 type veth peer name eth1-p", "ip link set eth1-p up", "ip link set eth1 up",
		"ip address add 203.0.114.12/24 dev eth1", "ip address add 2001:db8:114::12/64 dev eth1 nodad",
		"ip route add default via 192.168.50.1 metric 200", "ip route add default via 203.0.114.1 metric 100", "ip -6 route add default via 2001:db8:114::1 metric 100")
	node := []netip.Addr{netip.MustParseAddr("192.168.50.11"), netip.MustParseAddr("fd00:10::c0a8:320b")}
	link, err := netlink.LinkByName("eth1")
	if err != nil {
		t.Fatal(err)
	}
	mac := link.Attrs().HardwareAddr
	at := func(device string) string {
		out, err := exec.Command("ip", "-o", "address", "show", "dev", device).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	linked, outside, own := netip.MustParseAddr("203.0.114.50"), netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("192.168.50.100")
	linked6, outside6, own6 := netip.MustParseAddr("2001:db8:114::50"), netip.MustParseAddr("2001:db8:7::7"), netip.MustParseAddr("fd00:10::c0a8:3264")
	all := []netip.Addr{linked, outside, own, linked6, outside6, own6}
	here := map[string][]netip.Addr{"eth1": {linked, outside, linked6, outside6}, "uplink0": {own, own6}}
	check := func(when string, writes, want int, err error) {
		t.Helper()
		if err != nil || writes != want {
			t.Errorf("%s: %d writes, want %d, %v", when, writes, want, err)
		}
		for device, addresses := range here {
			for _, a := range addresses {
				if list := at(device); !strings.Contains(list, " "+a.String()+"/") {
					t.Errorf("%s: no %s at %s:\n%s", when, a, device, list)
				}
			}
		}
	}
	for _, a := range []netip.Addr{linked, outside} {
		next := frames(t, "eth1-p")
		writes, err := (&Addresses{}).Apply(Wanted{Always: all, Node: node})
		check("always", writes, map[netip.Addr]int{linked: len(all)}[a], err)
		if !told(next, append(append([]byte{0, 1}, mac...), a.AsSlice()...)) {
			t.Errorf("no gratuitous ARP request for %s where its neighbours are", a)
		}
	}
	next := frames(t, "eth1-p")
	if _, err := (&Addresses{}).Apply(Wanted{Always: all, Node: node}); err != nil {
		t.Fatal(err)
	}
	if !told(next, append(append(linked6.AsSlice(), 2, 1), mac...)) {
		t.Error("no unsolicited neighbour advertisement where its neighbours are")
	}
	// Without a default route for a moment, nothing moves.
	run("ip route del default metric 100", "ip route del default metric 200", "ip -6 route del default")
	writes, err := (&Addresses{}).Apply(Wanted{Always: all, Node: node})
	check("without a default route", writes, 0, err)
	leased := &Addresses{}
	run("ip route add default nexthop via 203.0.114.1 nexthop via 203.0.114.2", "ip -6 route add default via 2001:db8:114::1")
	if err := leased.Hold(all, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	writes, err = leased.Apply(Wanted{Leased: all, Node: node})
	check("leased", writes, 2*len(all), err)
	// The way out changes.
	run("ip route replace default via 192.168.50.1", "ip -6 route replace default via fd00:10::c0a8:3201")
	here = map[string][]netip.Addr{"eth1": {linked, linked6}, "uplink0": {own, own6, outside, outside6}}
	writes, err = leased.Apply(Wanted{Leased: all, Node: node})
	check("another way out", writes, 4, err)
}
