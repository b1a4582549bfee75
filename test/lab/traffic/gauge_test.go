package traffic

import (
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab/probe"
)

// TestGauge has all kinds of traffic at once: what is allowed is noted when it passes, and the
// packets of a sender are counted, whether or not a server takes them.
func TestGauge(t *testing.T) {
	ns, at := local(t)
	station := probe.NewStation(ns)
	t.Cleanup(func() { station.Close() })
	if err := station.Serve(model.UDP, at); err != nil {
		t.Fatal(err)
	}
	here := at.Addr()
	counted, err := Watch(ns, "lo", here)
	if err != nil {
		t.Fatal(err)
	}
	defer counted.Close()
	others, err := Watch(ns, "lo", netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("::1"))
	if err != nil {
		t.Fatal(err)
	}
	defer others.Close()

	g := NewGauge(t.Context())
	defer g.Stop()
	slow, forgetful := netip.AddrPortFrom(here, 81), netip.AddrPortFrom(here, 82)
	if err := g.SlowServer(ns, slow, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := g.Forgetful(ns, forgetful); err != nil {
		t.Fatal(err)
	}
	open := Route{"open", ns, at}
	var meters []*Meter
	for _, start := range []func() (*Meter, error){
		func() (*Meter, error) { return g.Pings(open) },
		func() (*Meter, error) { return g.Pings(Route{"slow", ns, slow}) },
		func() (*Meter, error) { return g.Openings(open), nil },
		func() (*Meter, error) { return g.Openings(Route{"forgetful", ns, forgetful}), nil },
		func() (*Meter, error) {
			s, err := g.Stream(open, Patience)
			return &s.Meter, err
		},
	} {
		m, err := start()
		if err != nil {
			t.Fatal(err)
		}
		meters = append(meters, m)
	}
	began := time.Now()
	eventually.True(t, "some of everything", func() bool {
		for _, m := range meters {
			if m.Through(began, time.Now()) < 3 {
				return false
			}
		}
		return true
	})
	// Nothing serves the port.
	shut := Route{"shut", ns, netip.AddrPortFrom(here, 90)}
	datagrams, err := g.Datagrams(shut)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Once(shut, 20001); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*Meter{datagrams, g.NewSockets(shut), g.Knocks(shut)} {
		eventually.True(t, "attempts", func() bool { return m.Attempts() > 3 })
	}
	eventually.True(t, "packets to a port that nothing serves", func() bool {
		all, err := counted.Since(began)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, a := range all {
			if a.To == shut.To {
				seen[a.Protocol] = true
				seen[a.Protocol+" once"] = seen[a.Protocol+" once"] || a.From.Port() == 20001
			}
		}
		return seen["tcp"] && seen["udp"] && seen["tcp once"] && seen["udp once"]
	})
	if all, err := others.Since(began); err != nil || len(all) > 0 {
		t.Errorf("%d packets of senders that sent none, %v", len(all), err)
	}
}

// TestFiltersBothFamilies counts the packets of one sender of each family alone.
func TestFiltersBothFamilies(t *testing.T) {
	ns, _ := local(t)
	four, six := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")
	g := NewGauge(t.Context())
	defer g.Stop()
	for _, senders := range [][]netip.Addr{{four}, {six}, {four, six}, {netip.MustParseAddr("192.0.2.1"), four, six}} {
		a, err := Watch(ns, "lo", senders...)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []netip.Addr{four, six} {
			if err := g.Once(Route{"once", ns, netip.AddrPortFrom(at, 90)}, 20002); err != nil {
				t.Fatal(err)
			}
		}
		for _, at := range []netip.Addr{four, six} {
			seen := func() bool {
				all, err := a.Since(time.Time{})
				if err != nil {
					t.Fatal(err)
				}
				for _, arrival := range all {
					if arrival.From.Addr() == at {
						return true
					}
				}
				return false
			}
			wanted := false
			for _, s := range senders {
				wanted = wanted || s == at
			}
			if wanted {
				eventually.True(t, "a packet of "+at.String(), seen)
			} else if seen() {
				t.Errorf("a packet of %s, which is none of %v", at, senders)
			}
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLongestGap(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	m := &Meter{times: []time.Time{at(-5), at(10), at(20), at(60), at(70)}}
	for _, c := range []struct{ from, to, wantFrom, wantTo int }{
		{0, 80, 20, 60},
		{0, 200, 70, 200},
		{30, 50, 30, 50},
		{-100, 15, -100, -5},
	} {
		if got := m.Longest(at(c.from), at(c.to)); got != (Gap{at(c.wantFrom), at(c.wantTo)}) {
			t.Errorf("from %d to %d: from %s to %s", c.from, c.to, got.From.Sub(start), got.To.Sub(start))
		}
	}
	m.Forget(at(20))
	if n := m.Through(at(-10), at(100)); n != 3 || !m.Last().Equal(at(70)) {
		t.Errorf("%d remain, the last at %s", n, m.Last().Sub(start))
	}
}

// A server that still sends when conntrack has forgotten the connection begins one of its own,
// from conntrack's view.
func TestForgetfulResetsSilentClients(t *testing.T) {
	t.Parallel()
	ns, free := local(t)
	at := netip.AddrPortFrom(free.Addr(), 82)
	g := NewGauge(t.Context())
	defer g.Stop()
	if err := g.Forgetful(ns, at); err != nil {
		t.Fatal(err)
	}
	conn, err := Connect(ns, netip.Addr{}, at, Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte{'!'}); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(Patience)); err != nil {
		t.Fatal(err)
	}
	var echo [2]byte
	if n, err := conn.Read(echo[:]); n != 1 || err != nil {
		t.Fatalf("the echo has %d bytes: %v", n, err)
	}
	if _, err := conn.Read(echo[:]); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a silent client got %v, not a reset", err)
	}
}

// TestSinceKnowsWhatWasAnswered asks for the packet of a connection right after its answer, before a reader may have run.
func TestSinceKnowsWhatWasAnswered(t *testing.T) {
	ns, _ := local(t)
	here := netip.MustParseAddr("127.0.0.1")
	a, err := Watch(ns, "lo", here)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for port := range 500 {
		began := time.Now()
		source := netip.AddrPortFrom(here, uint16(20000+port))
		if conn, err := ConnectFrom(ns, source, netip.AddrPortFrom(here, 90), knockTime); err == nil {
			conn.Close()
			t.Fatal("something serves the port")
		}
		found, err := a.Since(began)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(found, func(f Arrival) bool { return f.From == source }) {
			t.Fatalf("connection %d has been refused, and its packet has not arrived", port)
		}
	}
}
