package foreign

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/test/tablestest"
)

// TestDropsPacket: a chain is named if it drops that packet for certain, by what is known of it.
func TestDropsPacket(t *testing.T) {
	four := Forwarded{
		In: Interface{"gw0", 9}, Out: Interface{"eth0", 3}, Source: netip.MustParseAddr("10.10.0.5"), Destination: netip.MustParseAddr("192.0.2.9"),
		Protocol: unix.IPPROTO_TCP, Ports: [2]uint16{40000, 80}, New: true,
	}
	six, old, unknownOut, udp := four, four, four, four
	six.Source, six.Destination = netip.MustParseAddr("fd00::5"), netip.MustParseAddr("2001:db8::9")
	old.New, unknownOut.Out, udp.Protocol = false, Interface{}, unix.IPPROTO_UDP
	for _, c := range []struct {
		name, rules                       string
		four, six, old, unknownOut, dgram bool
	}{
		{"policy", "policy drop;", true, true, true, true, true},
		{"established", "policy drop; ct state established accept;", true, true, false, true, true},
		{"an address", "policy accept; ip daddr 192.0.2.0/24 drop;", true, false, true, true, true},
		{"an address of IPv6", "policy accept; ip6 saddr fd00::5 reject;", false, true, false, false, false},
		{"a port", "policy accept; tcp dport 80 drop;", true, true, true, true, false},
		{"another port", "policy accept; tcp dport 81 drop;", false, false, false, false, false},
		{"a source port", "policy accept; udp sport 40000 drop;", false, false, false, false, true},
		{"interfaces", "policy accept; iifname \"gw0\" oifname \"eth0\" drop;", true, true, true, false, true},
		{"another interface", "policy drop; iifname \"gw0\" accept;", false, false, false, false, false},
		{"a mark, which is not known", "policy accept; meta mark 0x1 drop;", false, false, false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns := tablestest.NewNamespace(t, "nft")
			ns.Feed(t, "table inet wall {\nchain passing {\ntype filter hook forward priority 0; "+c.rules+"\n}\n}\ntable inet felixlike {\nchain forward {\ntype filter hook forward priority 0; policy drop;\n}\n}\n", "nft", "-f", "-")
			for _, p := range []struct {
				name   string
				packet Forwarded
				want   bool
			}{{"IPv4", four, c.four}, {"IPv6", six, c.six}, {"established", old, c.old}, {"unknown interface", unknownOut, c.unknownOut}, {"UDP", udp, c.dgram}} {
				found, err := DropsPacket(ns.FD, "felixlike", "flx-", p.packet)
				if err != nil {
					t.Fatal(err)
				}
				if (len(found) == 1) != p.want || len(found) > 0 && found[0].Table != "wall" {
					t.Errorf("%s: %v, want %v", p.name, found, p.want)
				}
			}
		})
	}
}
