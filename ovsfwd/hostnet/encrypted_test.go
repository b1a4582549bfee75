package hostnet

import (
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/model"
)

// device makes an interface in the place of a WireGuard device, which this kernel may not have, and sets it up.
func device(t *testing.T) netlink.Link {
	t.Helper()
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "flx-wg0"}, PeerName: "far"}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
	return link
}

// TestEncryptedPeers: the device leads to a peer's pods and, for packets of pods, to its own address. A change of the setting
// replaces the routes in one step, in both directions. Without the device the agent says so, and with a new one the routes
// come back.
func TestEncryptedPeers(t *testing.T) {
	gw := inNamespace(t)
	wg := device(t)
	tunnelled, encrypted := testState(), testState()
	encrypted.Device = "flx-wg0"
	encrypted.Peers[0].Encrypted = model.Families()
	r := NewReconciler()
	apply(t, r, tunnelled)
	for range 2 {
		apply(t, r, encrypted)
		for _, c := range []struct{ dst, in, src string }{
			{"10.10.1.7", "", "192.168.50.11"},
			{"fd00:10::a0a:107", "", "fd00:10::c0a8:320b"},
			{"192.168.50.12", "flx-gw0", ""},
			{"fd00:10::c0a8:320c", "flx-gw0", ""},
		} {
			if got := lookup(t, c.dst, c.in); got.LinkIndex != wg.Attrs().Index || got.Gw != nil || c.src != "" && got.Src.String() != c.src {
				t.Errorf("to %s from %q: %v", c.dst, c.in, got)
			}
		}
		// The agent's own packets to the peer, and those of WireGuard, take the uplink.
		if got := lookup(t, "192.168.50.12", ""); got.LinkIndex == wg.Attrs().Index || got.LinkIndex == gw.Attrs().Index {
			t.Errorf("the node to the peer's address: %v", got)
		}
		if n := apply(t, NewReconciler(), encrypted); n != 0 {
			t.Errorf("apply of a new process: %d writes", n)
		}
		apply(t, r, tunnelled)
		if got := lookup(t, "10.10.1.7", ""); got.LinkIndex != gw.Attrs().Index {
			t.Errorf("after the setting changed back: %v", got)
		}
	}
	apply(t, r, encrypted)
	noticed := watch(t, r)
	if err := netlink.LinkSetDown(wg); err != nil {
		t.Fatal(err)
	}
	called(t, "the device is down", noticed)
	if err := netlink.LinkSetUp(wg); err != nil {
		t.Fatal(err)
	}
	if did, err := r.Apply(t.Context()); err != nil || len(did.Repaired) < 2 {
		t.Errorf("the device was down: repaired %v, %v", did.Repaired, err)
	}
	if err := netlink.LinkDel(wg); err != nil {
		t.Fatal(err)
	}
	called(t, "the device is gone", noticed)
	if _, err := r.Apply(t.Context()); err == nil {
		t.Error("no error without the device")
	}
	wg = device(t)
	apply(t, r, encrypted)
	if got := lookup(t, "10.10.1.7", ""); got.LinkIndex != wg.Attrs().Index {
		t.Errorf("with a new device: %v", got)
	}
}
