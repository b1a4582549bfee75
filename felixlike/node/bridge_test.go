package node

import (
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/uplink"
)

// TestUplinkAddressesFollow: the bridge follows changes of the uplink's addresses at once,
// not at the next resync.
func TestUplinkAddressesFollow(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	ns, err := namespace.Anonymous()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ns.Close)
	b := &Bridge{
		cfg: ovsdb.Config{Uplink: "up0"}, localIP: netip.MustParseAddr("192.168.77.100"), uplink: uplink.In(t.TempDir()),
		log: slog.New(slog.DiscardHandler),
	}
	err = ns.Do(func() error {
		ip := func(line string) string {
			out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput()
			if err != nil {
				t.Errorf("ip %s: %v\n%s", line, err, out)
			}
			return string(out)
		}
		moves := func(when string, want int) {
			if n, err := b.moveUplink(); n != want || err != nil {
				t.Errorf("%s: %d operations, %v; want %d", when, n, err, want)
			}
		}
		ip("link add up0 type veth peer name far0")
		ip("link add " + ovsdb.PhysicalBridge + " type veth peer name far1")
		for _, name := range []string{"up0", "far0", "far1"} {
			ip("link set " + name + " up")
		}
		ip("addr add 192.168.77.100/24 dev up0")
		moves("at first", 1)
		ip("addr add 192.168.77.50/32 dev up0")
		moves("not notified", 0)
		b.OnUpdate(model.HostAddressesUpdate{})
		moves("another address", 1)
		moves("nothing new", 0)
		ip("addr del 192.168.77.50/32 dev up0")
		b.OnUpdate(model.HostAddressesUpdate{})
		moves("it has gone", 1)
		if out := ip("addr show dev " + ovsdb.PhysicalBridge); strings.Contains(out, "192.168.77.50") || !strings.Contains(out, "192.168.77.100") {
			t.Errorf("the bridge has\n%s", out)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
