package policyflows

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/model"
)

func TestPortMasksCoverTheRange(t *testing.T) {
	seeded.Check(t, func(t *rapid.T) {
		first := rapid.Uint16().Draw(t, "first")
		last := rapid.Uint16Range(first, 65535).Draw(t, "last")
		masks := portMasks(model.PortRange{Protocol: model.UDP, First: first, Last: last})
		if len(masks) > 30 {
			t.Fatalf("%d masks", len(masks))
		}
		covered := 0
		for _, m := range masks {
			covered += 1<<16 - int(m.mask)
		}
		if covered != int(last)-int(first)+1 {
			t.Fatalf("%d ports of %d-%d are covered", covered, first, last)
		}
		some := rapid.SliceOfN(rapid.Uint16(), 10, 10).Draw(t, "ports")
		for _, port := range append(some, first-1, first, last, last+1) {
			in := port >= first && port <= last
			if matches := slices.ContainsFunc(masks, func(m portMask) bool { return port&m.mask == m.value }); matches != in {
				t.Fatalf("port %d of %d-%d: %t", port, first, last, matches)
			}
		}
	})
}

func TestPortMasks(t *testing.T) {
	for _, c := range []struct {
		r    model.PortRange
		want int
	}{
		{model.PortRange{Protocol: model.TCP, First: 0, Last: 65535}, 1},
		{model.PortRange{Protocol: model.TCP, First: 80, Last: 80}, 1},
		{model.PortRange{Protocol: model.TCP, First: 1, Last: 65534}, 30},
		{model.PortRange{Protocol: model.TCP, First: 81, Last: 80}, 0},
		{model.PortRange{Protocol: model.ICMP, First: 0, Last: 65535}, 1},
		{model.PortRange{Protocol: model.ICMPv6, First: 0x8000, Last: 0x80ff}, 1},
		{model.PortRange{Protocol: model.ICMP, First: 0x0d01, Last: 0x0d01}, 1},
		{model.PortRange{Protocol: model.ICMP, First: 0x0800, Last: 0x09ff}, 0},
		{model.PortRange{Protocol: model.ICMP, First: 0x0800, Last: 0x0803}, 0},
		{model.PortRange{Protocol: 47, First: 0, Last: 65535}, 0},
	} {
		if got := portMasks(c.r); len(got) != c.want {
			t.Errorf("%s: %v, want %d masks", c.r, got, c.want)
		}
	}
	whole := portMasks(model.PortRange{Protocol: model.TCP, First: 0, Last: 65535})
	if whole[0] != (portMask{protocol: model.TCP}) {
		t.Errorf("all ports: %+v", whole[0])
	}
}

func TestPortMasksByName(t *testing.T) {
	for want, m := range map[string]portMask{
		"tcp": {protocol: model.TCP}, "udp/53": {protocol: model.UDP, value: 53, mask: 0xffff}, "sctp/8080-8095": {protocol: model.SCTP, value: 8080, mask: 0xfff0},
		"icmp": {protocol: model.ICMP}, "icmp type 0": {protocol: model.ICMP, value: 0, mask: 0xff00}, "icmpv6 type 128 code 1": {protocol: model.ICMPv6, value: 0x8001, mask: 0xffff},
	} {
		if m.String() != want {
			t.Errorf("%s, want %s", m, want)
		}
	}
}
