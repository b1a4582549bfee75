package hostnet

import (
	"context"
	"errors"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// elsewhere is another connection tracking, which may fail.
type elsewhere struct {
	err   error
	asked [][]netip.Addr
}

func (e *elsewhere) ForgetConnections(_ context.Context, addrs []netip.Addr) (int, error) {
	e.asked = append(e.asked, addrs)
	if e.err != nil {
		return 0, e.err
	}
	return len(addrs), nil
}

func conntrackTool(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("conntrack", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("conntrack %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestConntrackForgetsEverywhere(t *testing.T) {
	if _, err := exec.LookPath("conntrack"); err != nil {
		t.Skip(err)
	}
	inNamespace(t)
	for _, ends := range [][2]string{{"10.10.0.5", "10.10.0.6"}, {"10.10.0.6", "10.10.0.5"}, {"10.10.0.6", "10.10.0.7"}, {"fd00::5", "fd00::6"}} {
		for _, zone := range []string{"0", "65520"} {
			conntrackTool(t, "-I", "-p", "udp", "-s", ends[0], "-d", ends[1], "--sport", "1", "--dport", "2", "-t", "99", "-w", zone)
		}
	}
	e := &elsewhere{err: errors.New("out of order")}
	c := NewConntrack(e)
	if n, err := c.Apply(t.Context()); n != 0 || err != nil || len(e.asked) != 0 {
		t.Errorf("without an address: %d %v, asked %v", n, err, e.asked)
	}
	gone := []netip.Addr{netip.MustParseAddr("10.10.0.5"), netip.MustParseAddr("fd00::5")}
	for _, a := range gone {
		c.Forget(a)
	}
	if n, err := c.Apply(t.Context()); n != 6 || !errors.Is(err, e.err) {
		t.Errorf("with elsewhere out of order: %d %v, want the kernel's 6 and the error", n, err)
	}
	e.err = nil
	if n, err := c.Apply(t.Context()); n != 2 || err != nil {
		t.Errorf("again: %d %v, want those elsewhere", n, err)
	}
	if n, err := c.Apply(t.Context()); n != 0 || err != nil || len(e.asked) != 2 || !slices.Equal(e.asked[1], gone) {
		t.Errorf("once more: %d %v, asked %v", n, err, e.asked)
	}
	left := conntrackTool(t, "-L") + conntrackTool(t, "-L", "-f", "ipv6")
	if strings.Contains(left, "10.10.0.5") || strings.Contains(left, "fd00::5") || strings.Count(left, "src=10.10.0.6") != 2 {
		t.Errorf("left:\n%s", left)
	}
}
