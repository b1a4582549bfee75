package foreign

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/test/tablestest"
)

// TestDrops: only a chain that drops the packet whatever else the packet may be is reported.
func TestDrops(t *testing.T) {
	p := Packet{
		Source: netip.MustParseAddr("192.168.50.2"), Destination: netip.MustParseAddr("192.168.50.1"),
		Interface: Interface{Name: "eth0", Index: 7}, Port: 6081, Mark: 0x08000000,
	}
	const head, drop = "type filter hook input priority 0; policy accept;\n", "type filter hook input priority 0; policy drop;\n"
	for _, c := range []struct {
		name, chain, more string
		drops             bool
	}{
		{"policy accept", head, "", false},
		{"policy drop", drop, "", true},
		{"the usual rules", drop + "ct state vmap { established : accept, related : accept, invalid : drop }\niif lo accept\niifname \"lo\" accept\nmeta l4proto { icmp, ipv6-icmp } accept\ntcp dport { 22, 80-90 } accept", "", true},
		{"firewalld", head + "ct state { established, related } accept\nct status dnat accept\niifname lo accept\njump zones\nct state invalid drop\nreject with icmpx admin-prohibited", "chain zones {\niifname \"eth0\" goto public\n}\nchain public {\ntcp dport 22 ct state { new, untracked } accept\n}", true},
		{"the port is accepted", drop + "udp dport 6081 accept", "", false},
		{"the port is accepted from the peers", drop + "ip saddr { 192.168.50.2, 192.168.50.3 } udp dport 6081 accept", "", false},
		{"the port is accepted from others", drop + "ip saddr { 192.168.51.2 } udp dport 6081 accept", "", true},
		{"the port is accepted from a subnet", drop + "ip saddr 192.168.50.0/24 udp dport 6000-7000 accept", "", false},
		{"the port is accepted from intervals", drop + "ip saddr { 10.0.0.0/8, 192.168.50.0/28 } accept", "", false},
		{"other intervals", drop + "ip saddr { 10.0.0.0/8, 192.168.50.4/30 } accept", "", true},
		{"the mark is accepted", drop + "meta mark and 0x08000000 == 0x08000000 accept", "", false},
		{"another mark is accepted", drop + "meta mark 0x1 accept", "", true},
		{"the mark is overwritten", drop + "meta mark set 0x1\nmeta mark and 0x08000000 == 0x08000000 accept", "", false},
		{"not TCP", head + "meta l4proto tcp accept\ndrop", "", true},
		{"another interface", head + "iifname \"eth1\" drop", "", false},
		{"the interface", head + "iifname \"eth0\" udp dport != 53 drop", "", true},
		{"something unknown accepts", drop + "limit rate 10/second accept", "", false},
		{"something unknown drops", head + "limit rate 10/second drop", "", false},
		{"something unknown jumps", head + "limit rate 10/second jump x\ndrop", "chain x {\nudp dport 6081 accept\n}", false},
		{"a jump drops", head + "udp dport 6081 jump x", "chain x {\nip protocol udp drop\n}", true},
		{"a jump returns", head + "jump x\naccept", "chain x {\nudp dport 6081 return\ndrop\n}", false},
		{"a goto returns to the policy", drop + "goto x\naccept", "chain x {\nreturn\n}", true},
		{"a verdict map", head + "udp dport vmap { 53 : accept, 6081 : drop }", "", true},
		{"a named set", drop + "udp dport @ports accept", "set ports {\ntype inet_service\nelements = { 6081 }\n}", false},
		{"an empty named set", drop + "udp dport @ports accept", "set ports {\ntype inet_service\n}", true},
		{"a concatenation", drop + "ip saddr . udp dport { 192.168.50.2 . 6081 } accept", "", false},
		{"another concatenation", drop + "ip saddr . udp dport { 192.168.50.3 . 6081 } accept", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns := tablestest.NewNamespace(t, "nft")
			ns.Feed(t, "table inet wall {\n"+c.more+"\nchain in {\n"+c.chain+"\n}\n}\ntable inet felixlike-x {\nchain in {\n"+drop+"\n}\n}\n", "nft", "-f", "-")
			found, err := Drops(ns.FD, "felixlike", p)
			if err != nil {
				t.Fatal(err)
			}
			if want := (Chain{"inet", "wall", "in"}); slices.Contains(found, want) != c.drops || len(found) > 1 {
				t.Fatalf("found %v, want %v", found, c.drops)
			}
			if !c.drops {
				return
			}
			command := Chain{"inet", "wall", "in"}.Accepting(p)
			ns.Run(t, strings.Fields(command)...)
			if found, err := Drops(ns.FD, "felixlike", p); err != nil || len(found) > 0 {
				t.Errorf("after %s: %v, %v", command, found, err)
			}
		})
	}
}

// TestDropsIPv6: the tables of family ip6 and conditions on IPv6 decide about a packet of IPv6.
func TestDropsIPv6(t *testing.T) {
	p := Packet{Source: netip.MustParseAddr("fd00:50::2"), Destination: netip.MustParseAddr("fd00:50::1"), Port: 6081, Mark: 0x08000000}
	for rule, dropped := range map[string]bool{
		"udp dport 6081 accept":                              false,
		"ip saddr 192.168.50.0/24 accept":                    true,
		"ip6 saddr fd00:50::/64 accept":                      false,
		"ip6 saddr { fd00:51::/64 } accept":                  true,
		"ip6 daddr fd00:50::1 accept":                        false,
		"ip6 nexthdr tcp accept":                             true,
		"ip6 saddr . udp dport { fd00:50::2 . 6081 } accept": false,
	} {
		for _, family := range []string{"inet", "ip6"} {
			if family == "ip6" && strings.HasPrefix(rule, "ip ") {
				continue
			}
			t.Run(family+" "+rule, func(t *testing.T) {
				ns := tablestest.NewNamespace(t, "nft")
				ns.Feed(t, "table "+family+" wall { chain in { type filter hook input priority 0; policy drop; "+rule+"; }; }\ntable ip a { chain b { type filter hook input priority 5; policy drop; }; }\n", "nft", "-f", "-")
				found, err := Drops(ns.FD, "felixlike", p)
				if want := (Chain{family, "wall", "in"}); err != nil || slices.Contains(found, want) != dropped || len(found) > 1 {
					t.Errorf("found %v, %v, want %v", found, err, dropped)
				}
			})
		}
	}
}

// TestDropsElsewhere: tables of iptables and chains at other hooks are not reported, those of family ip are.
func TestDropsElsewhere(t *testing.T) {
	ns := tablestest.NewNamespace(t, "nft", "iptables-nft")
	ns.Run(t, "iptables-nft", "-P", "INPUT", "DROP")
	ns.Feed(t, `table ip a { chain b { type filter hook input priority 5; policy drop; }; chain c { type filter hook forward priority 0; policy drop; }; }
table ip6 a { chain b { type filter hook input priority 5; policy drop; }; }
`, "nft", "-f", "-")
	found, err := Drops(ns.FD, "felixlike", Packet{Port: 6081, Mark: 1})
	if want := []Chain{{"ip", "a", "b"}}; err != nil || !slices.Equal(found, want) {
		t.Errorf("found %v, %v, want %v", found, err, want)
	}
}

// TestIncoming: the interface is that of the route to the sender.
func TestIncoming(t *testing.T) {
	ns := tablestest.NewNamespace(t)
	ns.Run(t, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
	ns.Run(t, "ip", "addr", "add", "192.168.50.1/24", "dev", "up0")
	ns.Run(t, "ip", "link", "set", "up0", "up")
	if in, err := Incoming(ns.FD, netip.MustParseAddr("192.168.50.2")); err != nil || in.Name != "up0" || in.Index == 0 {
		t.Errorf("%+v, %v", in, err)
	}
	if in, err := Incoming(ns.FD, netip.MustParseAddr("192.168.51.2")); err == nil {
		t.Errorf("a route from %+v", in)
	}
}
