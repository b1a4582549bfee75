package wireguard

import (
	"errors"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/felixlike/felixlike/internal/namespace"
)

// TestDevice: a second apply, also of another process, writes nothing; what another program changes is repaired and named;
// a kernel without WireGuard is named.
func TestDevice(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	key, err := LoadKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	state := State{
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.10.1.1/32"), netip.MustParsePrefix("fd00:10:0:1::1/128")},
		Peers:     []Peer{peer(2, "10.10.2.0/24", "192.168.50.2/32"), peer(3, "10.10.3.0/24", "fd00:10:0:3::/64")},
	}
	fresh := func() *Device {
		d := NewDevice("flx-wg0", 51820, key)
		d.SetState(state)
		d.SetMTU(1440)
		return d
	}
	ns, err := namespace.Anonymous()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	unsupported := Supported()
	err = ns.Do(func() error {
		d := fresh()
		did, err := d.Apply(t.Context())
		if unsupported != nil {
			if !errors.Is(err, ErrUnsupported) {
				t.Errorf("without WireGuard: %v", err)
			}
			return nil
		}
		if err != nil || did.Writes == 0 || len(did.Repaired) != 0 {
			t.Errorf("first apply: %+v, %v", did, err)
		}
		for name, d := range map[string]*Device{"the same": d, "another process": fresh()} {
			d.Invalidate()
			if did, err := d.Apply(t.Context()); err != nil || did.Writes != 0 {
				t.Errorf("second apply of %s: %+v, %v", name, did, err)
			}
		}
		for what, tamper := range tampers(d) {
			d.Invalidate()
			if err := tamper(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			did, err := d.Apply(t.Context())
			if err != nil || len(did.Repaired) != 1 || did.Repaired[0].Name+": "+did.Repaired[0].What != what {
				t.Errorf("%s: repaired %+v, %v", what, did.Repaired, err)
			}
			if todo, err := d.differences(); err != nil || len(todo) != 0 {
				t.Errorf("%s: %d differences are left, %v", what, len(todo), err)
			}
		}
		if gone, err := Remove("flx-wg0"); !gone || err != nil {
			t.Errorf("remove: %v, %v", gone, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if unsupported != nil {
		t.Skipf("the rest needs WireGuard: %v", unsupported)
	}
}

// tampers are foreign changes, by the repair that they cause.
func tampers(d *Device) map[string]func() error {
	on := func(do func(netlink.Link) error) func() error {
		return func() error {
			link, err := netlink.LinkByName(d.name)
			if err != nil {
				return err
			}
			return do(link)
		}
	}
	more := d.wanted.Peers[0]
	more.Sources = append(more.Sources[:len(more.Sources):len(more.Sources)], netip.MustParsePrefix("10.99.0.0/16"))
	c, _ := changed(more, nil)
	return map[string]func() error{
		"device: missing":               on(netlink.LinkDel),
		"mtu: 1300 instead of 1440":     on(func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1300) }),
		"address 10.99.0.1/32: foreign": on(func(l netlink.Link) error { return netlink.AddrAdd(l, address(netip.MustParsePrefix("10.99.0.1/32"))) }),
		"address fd00:10:0:1::1/128: missing": on(func(l netlink.Link) error {
			return netlink.AddrDel(l, address(netip.MustParsePrefix("fd00:10:0:1::1/128")))
		}),
		"peer " + c.peer.PublicKey.String() + ": other allowed IPs": func() error {
			return configure(d.name, wgtypes.Config{Peers: []wgtypes.PeerConfig{c.peer}})
		},
	}
}
