package traffic

import (
	"errors"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab/probe"
)

// local is a namespace with an echo server on its loopback interface.
func local(t *testing.T) (*namespace.Namespace, netip.AddrPort) {
	t.Helper()
	ns, err := namespace.Anonymous()
	if err != nil {
		t.Skip("no network namespaces here:", err)
	}
	t.Cleanup(ns.Close)
	err = ns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort("127.0.0.1:80")
	station := probe.NewStation(ns)
	if err := station.Serve(model.TCP, at); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { station.Close() })
	return ns, at
}

// TestTrafficGoesOn has all kinds of traffic at once.
func TestTrafficGoesOn(t *testing.T) {
	ns, at := local(t)
	open := Route{"open", ns, at}
	// No answer: the address is not in this namespace.
	dead := Route{"dead", ns, netip.MustParseAddrPort("192.0.2.1:80")}
	tr := Start(t.Context(), Options{Streams: []Route{open}, Opened: []Route{open}, Denied: []Route{dead}})
	if err := errors.Join(tr.Idle(open), tr.Push(ns, Route{"push", ns, netip.MustParseAddrPort("127.0.0.1:9000")})); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "some of everything", func() bool {
		s := tr.Summary()
		return s.Blocks > 2 && s.Pushed > 2 && s.Opened > 2 && s.Denied > 2
	})
	if sum, err := tr.Stop(); err != nil {
		t.Error(sum, err)
	}
}

// TestBehindHalfOpen: a new connection waits if the server still has an older one from its port.
func TestBehindHalfOpen(t *testing.T) {
	ns, at := local(t)
	nft := func(script string) {
		if err := ns.Do(func() error { return exec.Command("nft", script).Run() }); err != nil {
			t.Error(err)
		}
	}
	nft("add table x; add chain x y { type filter hook input priority 0; }; add rule x y tcp dport 80 drop")
	tr := Start(t.Context(), Options{Opened: []Route{{"open", ns, at}}, Patience: halfOpenCheck, HalfOpen: func(_ Route, port int) bool {
		nft("delete table x")
		return port != 0
	}})
	eventually.True(t, "an opened connection", func() bool { return tr.Summary().Opened > 0 })
	if sum, err := tr.Stop(); err != nil || sum.HalfOpen != 1 {
		t.Error(sum, err)
	}
}

// TestFaultsAreNamed has denied connections open and allowed ones refused.
func TestFaultsAreNamed(t *testing.T) {
	ns, at := local(t)
	shut := netip.AddrPortFrom(at.Addr(), 81)
	tr := Start(t.Context(), Options{Streams: []Route{{"a", ns, shut}}, Opened: []Route{{"b", ns, shut}}, Denied: []Route{{"c", ns, at}}})
	faults := func() int { tr.mu.Lock(); defer tr.mu.Unlock(); return len(tr.faults) }
	eventually.True(t, "three faults", func() bool { return faults() == 3 })
	_, err := tr.Stop()
	for _, want := range []string{"stream a", "new connection b", "denied connection c: got in"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}
