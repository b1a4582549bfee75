package carry

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/rules"
)

// TestDisallow: connections lose the mark of allowed ones where packets are judged, and
// nothing else; the other ones keep it.
func TestDisallow(t *testing.T) {
	const others = 0x40
	for _, inSwitch := range []bool{false, true} {
		c, k := kernelNode(t)
		var puts []conntrack.Put
		for _, protocol := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
			one := connection(protocol, "10.10.0.2:5", "10.10.0.3:80", "10.10.0.3:80", "10.10.0.2:5")
			zone, kernel := inZone(one), inKernel(one)
			zone.Label.Low, kernel.Mark, kernel.MarkMask = others, kernel.Mark|others, kernel.MarkMask|others
			puts = append(puts, zone, kernel)
		}
		kept := connection(unix.IPPROTO_TCP, "10.10.0.2:6", "10.10.0.3:80", "10.10.0.3:80", "10.10.0.2:6")
		puts = append(puts, inZone(kept), inKernel(kept))
		write(t, k, puts...)
		known, err := c.Through(t.Context(), inSwitch)
		if err != nil || len(known) != 4 {
			t.Fatalf("%+v, %v", known, err)
		}
		var ended []conntrack.Connection
		for _, one := range known {
			if one.Original != kept.Original {
				ended = append(ended, one)
			}
		}
		for range 2 { // again does no harm
			if n, err := c.Disallow(t.Context(), inSwitch, ended); n != len(ended) || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}
		left, err := c.Through(t.Context(), inSwitch)
		if err != nil || len(left) != 1 || left[0].Original != kept.Original {
			t.Errorf("in the switch %t: %+v are left, %v", inSwitch, left, err)
		}
		err = k.Dump(func(one conntrack.Connection) {
			judgedHere := inSwitch == (one.Zone == pipeline.Zone)
			isAllowed := isAllowed(&one) && one.Zone == pipeline.Zone || one.Mark&rules.MarkAllowed != 0 && one.Zone == 0
			if want := one.Original == kept.Original || !judgedHere; isAllowed != want {
				t.Errorf("in the switch %t: %+v, want allowed %t", inSwitch, one, want)
			}
			if one.Original != kept.Original && one.Label.Low|uint64(one.Mark)&others == 0 || one.Timeout < 50*time.Minute {
				t.Errorf("in the switch %t: more has changed: %+v", inSwitch, one)
			}
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestDisallowInUserspace does so in the switch's own connection tracking, with thousands.
func TestDisallowInUserspace(t *testing.T) {
	const n = 10000
	c := newCluster(t)
	c.withKernel(func(k *conntrack.Kernel) {
		if written, err := k.Write(many(n)); err != nil || written != n {
			t.Errorf("wrote %d, %v", written, err)
		}
	})
	c.carry(c.carrier.ToSwitch)
	all, err := c.carrier.client.DumpConntrack(c.Context(), pipeline.Zone)
	if err != nil || len(all) != n {
		t.Fatal(len(all), err)
	}
	start := time.Now()
	inNamespace(t, c.NS, func() {
		if done, err := c.carrier.Disallow(c.Context(), true, all[:n-10]); err != nil || done != n-10 {
			t.Errorf("%d, %v", done, err)
		}
	})
	t.Logf("%d connections: %s", n-10, time.Since(start))
	left, err := c.carrier.client.DumpConntrack(c.Context(), pipeline.Zone)
	if err != nil || len(left) != n {
		t.Errorf("%d entries left, %v", len(left), err)
	}
	allowed := 0
	for _, k := range left {
		if isAllowed(&k) {
			allowed++
		}
	}
	if allowed != 10 {
		t.Errorf("%d are allowed, want 10", allowed)
	}
}
