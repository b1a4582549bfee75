package carry

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/rules"
)

// many returns allowed connections of pod a to others, of all protocols and both
// families.
func many(n int) []conntrack.Put {
	puts := make([]conntrack.Put, n)
	for i := range puts {
		t := conntrack.Tuple{Protocol: unix.IPPROTO_TCP, Src: netip.MustParseAddr(podA4), Dst: netip.MustParseAddr(podB4)}
		if i%2 == 1 {
			t.Src, t.Dst = netip.MustParseAddr(podA6), netip.MustParseAddr(podB6)
		}
		switch i % 10 {
		case 8:
			t.Protocol, t.ICMPType, t.ICMPID = unix.IPPROTO_ICMP, 8, uint16(i)
		case 9:
			t.Protocol, t.ICMPType, t.ICMPID = unix.IPPROTO_ICMPV6, 128, uint16(i)
		case 6, 7:
			t.Protocol = unix.IPPROTO_UDP
			fallthrough
		default:
			t.SrcPort, t.DstPort = uint16(1024+i), 80
		}
		k := conntrack.Connection{Original: t, Reply: t.Reverse(), Replied: true, Mark: rules.MarkAllowed}
		k.State, k.Timeout = settled(&k), lifetime(&k)
		puts[i] = conntrack.Put{Connection: k, New: true, MarkMask: rules.MarkAllowed}
	}
	return puts
}

// withKernel calls f with the connection tracking of the node.
func (c *cluster) withKernel(f func(k *conntrack.Kernel)) {
	c.t.Helper()
	inNamespace(c.t, c.NS, func() {
		k, err := conntrack.OpenKernel()
		if err != nil {
			c.t.Error(err)
			return
		}
		f(k)
		if err := k.Close(); err != nil {
			c.t.Error(err)
		}
	})
}

func TestThousands(t *testing.T) {
	const n = 5000
	c := newCluster(t)
	c.withKernel(func(k *conntrack.Kernel) {
		if written, err := k.Write(many(n)); err != nil || written != n {
			t.Errorf("wrote %d, %v", written, err)
		}
	})
	timed := func(what string, want Result, f func() Result) {
		t.Helper()
		start := time.Now()
		if r := f(); r != want {
			t.Errorf("%s: %+v, want %+v", what, r, want)
		}
		t.Logf("%s: %v", what, time.Since(start))
	}
	toSwitch := func() Result { return c.carry(c.carrier.ToSwitch) }
	toKernel := func() Result { return c.carry(c.carrier.ToKernel) }
	timed("to the switch", Result{Allowed: n, Written: n}, toSwitch)
	timed("to the switch, all there", Result{Allowed: n}, toSwitch)
	known, err := c.carrier.client.DumpConntrack(c.Context(), pipeline.Zone)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range known {
		if !isAllowed(&k) || !k.Replied || k.Mark != 0 || expires(&k, &k) {
			t.Fatalf("%+v", k)
		}
	}
	c.in(c.NS, "conntrack", "-F")
	timed("to the kernel", Result{Allowed: n, Written: n}, toKernel)
	timed("to the kernel, all there", Result{Allowed: n}, toKernel)
	c.withKernel(func(k *conntrack.Kernel) {
		want := map[conntrack.Tuple]bool{}
		for _, p := range many(n) {
			want[p.Original] = true
		}
		err := k.Dump(func(k conntrack.Connection) {
			if k.Zone == 0 && want[k.Original] && k.Replied && k.Mark == rules.MarkAllowed {
				delete(want, k.Original)
			}
		})
		if err != nil || len(want) > 0 {
			t.Errorf("%d are not in the kernel, %v", len(want), err)
		}
	})
	timed("forget one end of all", Result{Written: n / 2}, func() Result {
		forgotten, err := c.carrier.ForgetConnections(c.Context(), []netip.Addr{netip.MustParseAddr(podB6)})
		if err != nil {
			t.Error(err)
		}
		return Result{Written: forgotten}
	})
	known, err = c.carrier.client.DumpConntrack(c.Context(), pipeline.Zone)
	gone := func(k conntrack.Connection) bool { return k.Original.Dst.Is6() }
	if err != nil || len(known) != n/2 || slices.ContainsFunc(known, gone) {
		t.Errorf("%d connections left, want %d of IPv4, %v", len(known), n/2, err)
	}
}
