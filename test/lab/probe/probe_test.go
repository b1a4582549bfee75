package probe_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab/probe"
)

var (
	left   = []netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd01::1")}
	right  = []netip.Addr{netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("fd01::2")}
	unused = []netip.Addr{netip.MustParseAddr("10.1.0.9"), netip.MustParseAddr("fd01::9")}
	protos = []model.Protocol{model.TCP, model.UDP, model.SCTP}
)

// patience bounds waits for what has to come.
const patience = 15 * time.Second

// pair joins two namespaces by a veth pair and returns a station in each.
func pair(t *testing.T) (a, b *probe.Station) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	var spaces []*namespace.Namespace
	for _, side := range []string{"a", "b"} {
		ns, err := namespace.Create(fmt.Sprintf("flx-probe-%d-%s", os.Getpid(), side))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ns.Close()
			if err := namespace.Delete(ns.Name()); err != nil {
				t.Error(err)
			}
		})
		spaces = append(spaces, ns)
	}
	peer, err := os.Open(spaces[1].Path())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	must(t, spaces[0].Do(func() error {
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(peer.Fd())),
		})
	}))
	must(t, spaces[0].Do(func() error { return configure(left) }))
	must(t, spaces[1].Do(func() error { return configure(right) }))
	for _, ns := range spaces {
		must(t, ns.Do(operational))
	}
	a, b = probe.NewStation(spaces[0]), probe.NewStation(spaces[1])
	t.Cleanup(func() { must(t, errors.Join(a.Close(), b.Close())) })
	return a, b
}

// operational waits until eth0 sends packets. The kernel drops packets before its
// link watch, which may be a second late, has made it operational (RFC 2863).
func operational() error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		if link.Attrs().OperState == netlink.OperUp {
			return nil
		}
	}
	return fmt.Errorf("eth0 is not operational after %s", patience)
}

func configure(addrs []netip.Addr) error {
	var errs []error
	for _, name := range []string{"lo", "eth0"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		errs = append(errs, netlink.LinkSetUp(link))
		if name == "lo" {
			continue
		}
		for _, addr := range addrs {
			bits := 24 + (addr.BitLen()-32)*40/96
			errs = append(errs, netlink.AddrAdd(link, &netlink.Addr{
				IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(bits, addr.BitLen())}, Flags: unix.IFA_F_NODAD,
			}))
		}
		// A neighbour that swallows everything: no answer, and no ICMP.
		for _, addr := range unused {
			errs = append(errs, netlink.NeighSet(&netlink.Neigh{
				LinkIndex: link.Attrs().Index, IP: addr.AsSlice(), State: netlink.NUD_PERMANENT,
				HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9},
			}))
		}
	}
	return errors.Join(errs...)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestThroughRefusedAndNoAnswer(t *testing.T) {
	a, b := pair(t)
	for _, target := range []struct {
		to      []netip.Addr
		port    uint16
		reason  string
		timeout time.Duration
	}{
		// An answer may be late; that there is none is known after any time.
		{right, 80, probe.Answered, patience},
		{right, 81, probe.Refused, patience},
		{unused, 80, probe.NoAnswer, 300 * time.Millisecond},
	} {
		var flows []probe.Flow
		for i, source := range left {
			for _, proto := range protos {
				must(t, b.Serve(proto, netip.AddrPortFrom(right[i], 80)))
				must(t, b.Serve(proto, netip.AddrPortFrom(right[i], 80)))
				flows = append(flows, probe.Flow{From: a, Source: source, Target: netip.AddrPortFrom(target.to[i], target.port), Protocol: proto})
			}
		}
		start := time.Now()
		for i, got := range probe.Run(context.Background(), flows, probe.Options{Timeout: target.timeout}) {
			if got.Reason != target.reason || got.Through != (target.reason == probe.Answered) {
				t.Errorf("%s %s -> %s: %+v, want %q", flows[i].Protocol, flows[i].Source, flows[i].Target, got, target.reason)
			}
		}
		t.Logf("%d flows in %s", len(flows), time.Since(start))
	}
}

// TestResetIsNotRefused: a server that resets connections says more than one that is not there.
func TestResetIsNotRefused(t *testing.T) {
	a, b := pair(t)
	at := netip.AddrPortFrom(right[0], 80)
	var listener net.Listener
	must(t, b.Namespace().Do(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp4", at.String())
		return err
	}))
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			// The byte has come, so that the client is connected.
			_, _ = io.ReadFull(conn, make([]byte, 1))
			_ = conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}
	}()
	got := probe.Run(t.Context(), []probe.Flow{{From: a, Source: left[0], Target: at, Protocol: model.TCP}}, probe.Options{Timeout: patience})[0]
	if got.Through || got.Err != nil || got.Reason != probe.Reset {
		t.Errorf("%+v, want %q", got, probe.Reset)
	}
}

func TestSelf(t *testing.T) {
	a, _ := pair(t)
	var flows []probe.Flow
	for _, addr := range left {
		for _, proto := range protos {
			target := netip.AddrPortFrom(addr, 80)
			must(t, a.Serve(proto, target))
			flows = append(flows, probe.Flow{From: a, Source: addr, Target: target, Protocol: proto})
		}
	}
	for i, got := range probe.Run(context.Background(), flows, probe.Options{Timeout: patience}) {
		if !got.Through {
			t.Errorf("%s to itself at %s: %+v", flows[i].Protocol, flows[i].Target, got)
		}
	}
}

func TestManyInParallel(t *testing.T) {
	a, b := pair(t)
	var flows []probe.Flow
	for range 200 {
		for i, source := range left {
			for _, proto := range protos {
				must(t, b.Serve(proto, netip.AddrPortFrom(right[i], 80)))
				flows = append(flows, probe.Flow{From: a, Source: source, Target: netip.AddrPortFrom(right[i], 80), Protocol: proto})
			}
		}
	}
	start := time.Now()
	for i, got := range probe.Run(context.Background(), flows, probe.Options{Timeout: patience}) {
		if !got.Through {
			t.Errorf("%s to %s: %+v", flows[i].Protocol, flows[i].Target, got)
		}
	}
	t.Logf("%d flows in %s", len(flows), time.Since(start))
}

func TestNotTriedWhenTheSourceIsWrong(t *testing.T) {
	a, _ := pair(t)
	got := probe.Run(context.Background(), []probe.Flow{{
		From: a, Source: netip.MustParseAddr("192.0.2.1"), Target: netip.AddrPortFrom(right[0], 80), Protocol: model.TCP,
	}}, probe.Options{})
	if got[0].Err == nil || got[0].Through {
		t.Errorf("probe from an address that is not there: %+v", got[0])
	}
}

func TestFlowsBeginAtTheRate(t *testing.T) {
	a, b := pair(t)
	must(t, b.Serve(model.TCP, netip.AddrPortFrom(right[0], 80)))
	flows := make([]probe.Flow, 21)
	for i := range flows {
		flows[i] = probe.Flow{From: a, Source: left[0], Target: netip.AddrPortFrom(right[0], 80), Protocol: model.TCP}
	}
	start := time.Now()
	for i, o := range probe.Run(t.Context(), flows, probe.Options{Rate: 100, Timeout: patience}) {
		if !o.Through {
			t.Errorf("flow %d: %s", i, o.Reason)
		}
	}
	if took := time.Since(start); took < 200*time.Millisecond {
		t.Errorf("21 flows, 100 a second: %s", took)
	}
}
