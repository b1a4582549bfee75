package underlay

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netns"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
)

// inNamespace runs the test on a thread in a fresh network namespace.
func inNamespace(t *testing.T, lines ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	runtime.LockOSThread()
	old, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netns.Set(old); err != nil {
			t.Error(err)
		}
		_ = fresh.Close()
		_ = old.Close()
		runtime.UnlockOSThread()
	})
	for _, line := range lines {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v\n%s", line, err, out)
		}
	}
}

func TestDatapath(t *testing.T) {
	none := errors.New("no module")
	both, user := []string{"netdev", "system"}, []string{"netdev"}
	for _, c := range []struct {
		name    string
		kernel  error
		offered []string
		has     string
		want    string
		why     string
	}{
		{"module", nil, both, "", ovsdb.DatapathSystem, "answers"},
		{"module, vswitchd has never run", nil, nil, "", ovsdb.DatapathSystem, "answers"},
		{"no module", none, both, "", ovsdb.DatapathNetdev, "no module"},
		{"not offered", nil, user, "", ovsdb.DatapathNetdev, "--disable-system"},
		{"a bridge keeps the userspace one", nil, both, ovsdb.DatapathNetdev, ovsdb.DatapathNetdev, "set datapath to system"},
		{"a bridge keeps what alone works", none, both, ovsdb.DatapathNetdev, ovsdb.DatapathNetdev, "already"},
		{"the module has gone", none, both, ovsdb.DatapathSystem, ovsdb.DatapathSystem, "the bridge has it, but no module: install the module"},
		{"no longer offered", nil, user, ovsdb.DatapathSystem, ovsdb.DatapathSystem, "set datapath to netdev"},
		{"the module stays", nil, both, ovsdb.DatapathSystem, ovsdb.DatapathSystem, "answers"},
	} {
		if got, why := Datapath(c.kernel, c.offered, c.has); got != c.want || !strings.Contains(why, c.why) {
			t.Errorf("%s: %s because %q, want %s because of %q", c.name, got, why, c.want, c.why)
		}
	}
}

func TestFindUplink(t *testing.T) {
	node := netip.MustParseAddr("192.168.77.100")
	taken := func(context.Context) (string, error) { return "up0", nil }
	base := []string{"link add up0 mtu 1400 type veth peer name far0", "link set up0 up", "link set far0 up", "link set lo up"}
	for _, c := range []struct {
		name  string
		lines []string
		want  Uplink
		wrong string
	}{
		{"by the address", []string{"addr add 192.168.77.100/24 dev up0"}, Uplink{"up0", 1400, "has the node's address 192.168.77.100"}, ""},
		{
			"moved to the bridge",
			[]string{"link add br-phy type veth peer name phy1", "link set br-phy up", "addr add 192.168.77.100/24 dev br-phy"},
			Uplink{"up0", 1400, "it is in bridge br-phy, which has the node's address 192.168.77.100"},
			"",
		},
		{
			"on the loopback",
			[]string{"addr add 192.168.77.100/32 dev lo", "addr add 10.1.1.2/24 dev up0", "route add default via 10.1.1.1"},
			Uplink{"up0", 1400, "has the default route"},
			"",
		},
		{
			"by the better default route",
			[]string{
				"link add up1 type veth peer name far1", "link set up1 up", "link set far1 up", "addr add 10.1.1.2/24 dev up0", "addr add 10.1.2.2/24 dev up1",
				"route add default via 10.1.2.1 dev up1 metric 100", "route add default via 10.1.1.1 dev up0 metric 50",
			},
			Uplink{"up0", 1400, "has the default route"},
			"",
		},
		{"by the default route of IPv6", []string{"-6 route add default dev up0"}, Uplink{"up0", 1400, "has the default route"}, ""},
		{"nothing", nil, Uplink{}, "no interface has the node's address 192.168.77.100"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inNamespace(t, append(base, c.lines...)...)
			got, err := FindUplink(t.Context(), node, taken)
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("error %v, want one with %q", err, c.wrong)
				}
				return
			}
			if err != nil || got != c.want {
				t.Errorf("%+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

func TestPodMTU(t *testing.T) {
	for _, c := range []struct {
		tunnel     string
		outer      model.Family
		link, want int
	}{
		{"geneve", model.IPv4, 1500, 1450},
		{"vxlan", model.IPv4, 9000, 8950},
		{"gre", model.IPv4, 1500, 1458},
		{"wireguard", model.IPv4, 1500, 1440},
		{"geneve", model.IPv4, 65536, 65485},
		{"geneve", model.IPv4, 1300, 0},
		{"stt", model.IPv4, 1500, 0},
		{"geneve", model.IPv6, 1500, 1430},
		{"vxlan", model.IPv6, 9000, 8930},
		{"wireguard", model.IPv6, 1500, 1420},
		{"geneve", model.IPv6, 1350, 1280},
		{"geneve", model.IPv6, 1349, 0},
	} {
		got, err := PodMTU(Uplink{Name: "up0", MTU: c.link}, c.tunnel, c.outer)
		if got != c.want || (err == nil) != (c.want != 0) {
			t.Errorf("%s in IPv%s over %d: %d, %v; want %d", c.tunnel, c.outer, c.link, got, err, c.want)
		}
	}
}

// TestRoutedMTU: without a tunnel pods have the uplink's MTU.
func TestRoutedMTU(t *testing.T) {
	for link, want := range map[int]int{1500: 1500, 9000: 9000, 65536: 65535, 1280: 1280, 1279: 0} {
		got, err := RoutedMTU(Uplink{Name: "up0", MTU: link})
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("of %d: %d, %v", link, got, err)
		}
	}
}
