package uplink

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/sysctl"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
)

// inNamespace runs the test on a thread in a fresh network namespace with a
// veth pair: up0 stands for the uplink, phy0 for the bridge's local port. The
// other ends are up, so that both have carrier. It returns a directory for the movers.
func inNamespace(t *testing.T) In {
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
	for _, line := range []string{
		"link add up0 type veth peer name far0",
		"link add phy0 type veth peer name far1",
		"link set up0 up", "link set far0 up", "link set far1 up",
		"addr add 192.168.77.100/24 dev up0",
		"addr add fd77::100/64 dev up0 nodad",
		"route add default via 192.168.77.1 dev up0",
		"route add 10.99.0.0/16 via 192.168.77.2 dev up0 src 192.168.77.100 metric 50",
		"-6 route add default via fd77::1 dev up0 metric 1024",
	} {
		ip(t, line)
	}
	return In(t.TempDir())
}

func ip(t *testing.T, line string) string {
	t.Helper()
	out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %s: %v\n%s", line, err, out)
	}
	return string(out)
}

func checkMoved(t *testing.T) {
	t.Helper()
	for _, want := range []struct{ command, text string }{
		{"-4 addr show dev phy0", "192.168.77.100/24"},
		{"-6 addr show dev phy0", "fd77::100/64"},
		{"-4 route show default", "via 192.168.77.1 dev phy0"},
		{"-4 route show 10.99.0.0/16", "via 192.168.77.2 dev phy0 src 192.168.77.100 metric 50"},
		{"-4 route show 192.168.77.0/24", "dev phy0 proto kernel"},
		{"-6 route show default", "via fd77::1 dev phy0"},
	} {
		if out := ip(t, want.command); !strings.Contains(out, want.text) {
			t.Errorf("ip %s: no %q in\n%s", want.command, want.text, out)
		}
	}
	for _, command := range []string{"-4 route show dev up0", "-6 route show default dev up0", "-6 route show fd77::/64 dev up0"} {
		if out := ip(t, command); out != "" {
			t.Errorf("ip %s: left behind:\n%s", command, out)
		}
	}
	if !shielded(t, "up0") {
		t.Error("the host still listens to the uplink")
	}
}

func TestMove(t *testing.T) {
	u := inNamespace(t)
	// As the agent sets it when it turns on forwarding: the host sees advertisements on the bridge alone.
	if err := sysctl.Write(hostnet.AcceptRouterAdvertisements("up0"), "2"); err != nil {
		t.Fatal(err)
	}
	moved, err := u.Move("up0", "phy0", own)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Moved{Addresses: 2, Routes: 3}); moved != want {
		t.Errorf("moved %+v, want %+v", moved, want)
	}
	checkMoved(t)
	for key, want := range map[string]string{hostnet.AcceptRouterAdvertisements("phy0"): "2", "net/ipv6/conf/phy0/autoconf": "0"} {
		if got, err := sysctl.Read(key); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %s", key, got, err, want)
		}
	}
	if moved, err = u.Move("up0", "phy0", own); err != nil || moved != (Moved{}) {
		t.Errorf("second time: %+v, %v", moved, err)
	}
	checkMoved(t)
}

// TestMoveResumes cuts the move off after each of its steps.
func TestMoveResumes(t *testing.T) {
	for step := range 9 {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			u := inNamespace(t)
			partly(t, step)
			if _, err := u.Move("up0", "phy0", own); err != nil {
				t.Fatal(err)
			}
			checkMoved(t)
		})
	}
}

// partly does the first n of the steps that Move takes, in its order.
func partly(t *testing.T, n int) {
	t.Helper()
	m, err := newMover("up0", "phy0")
	if err != nil {
		t.Fatal(err)
	}
	steps := []func() error{func() error { return netlink.LinkSetUp(m.to) }}
	addrs, err := addresses(m.from, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	all, err := routes(m.from, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		steps = append(steps, func() error { return m.give(a) })
	}
	for _, r := range all {
		steps = append(steps, func() error { return m.twin(r) }, func() error {
			// In IPv4 the twin has taken its place.
			if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
			return nil
		})
	}
	for i, step := range steps {
		if i >= n {
			return
		}
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMoveNamesWhatIsMissing(t *testing.T) {
	u := inNamespace(t)
	if _, err := u.Move("up0", "none0", own); err == nil || !strings.Contains(err.Error(), "none0") {
		t.Errorf("got %v", err)
	}
	if _, err := MAC("none0"); err == nil || !strings.Contains(err.Error(), "none0") {
		t.Errorf("got %v", err)
	}
}
