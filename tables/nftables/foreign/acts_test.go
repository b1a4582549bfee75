package foreign

import (
	"fmt"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/test/tablestest"
)

// gateway is the interface of the tests.
var gateway = Interface{Name: "gw0", Index: 9}

// actsIn returns what the chains of a namespace may do, one in a line.
func actsIn(t *testing.T, ns tablestest.Namespace) string {
	t.Helper()
	found, err := Acts(ns.FD, "felixlike", "flx-", gateway)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, a := range found {
		lines = append(lines, a.String())
	}
	return strings.Join(lines, "\n")
}

// TestActs: a chain is reported if it may do anything with a packet of an established connection but let it pass.
func TestActs(t *testing.T) {
	const head, drop = "type filter hook forward priority 0; policy accept;\n", "type filter hook forward priority 0; policy drop;\n"
	for _, c := range []struct{ name, chain, more, what string }{
		{"nothing", head, "", ""},
		{"policy drop", drop, "", "drop"},
		{"established are accepted first", drop + "ct state established,related counter accept\nlog", "", ""},
		{"a verdict map of states", drop + "ct state vmap { established : accept, related : accept, invalid : drop }", "", ""},
		{"invalid are dropped", head + "ct state invalid drop\nct state { new, untracked } jump x", "chain x {\nlog\ndrop\n}", ""},
		{"a jump", head + "jump x", "chain x {\nmeta l4proto udp return\nlog\n}", "log"},
		{"log", head + "log", "", "log"},
		{"log of new connections", head + "ct state new log", "", ""},
		{"a block list", head + "ip saddr { 192.0.2.1 } drop", "", "drop"},
		{"a block list for another interface", head + "iifname \"eth0\" ip saddr { 192.0.2.1 } drop", "", ""},
		{"out of another interface", head + "oifname \"docker0\" drop\niifname \"docker0\" oifname != \"docker0\" log", "", ""},
		{"the interface", head + "oifname \"gw0\" drop", "", "drop"},
		{"the interface by number", head + "iif 9 drop", "", "drop"},
		{"segment sizes of SYN", head + "tcp flags syn tcp option maxseg size set rt mtu", "", ""},
		{"segment sizes, as documented", head + "tcp flags & (syn|rst) == syn tcp option maxseg size set rt mtu", "", ""},
		{"an option of all segments", head + "tcp option maxseg size set 1000", "", "exthdr set"},
		{"acknowledgements", head + "tcp flags & ack == ack log", "", "log"},
		{"a mark", head + "meta mark set 0x1", "", "meta set"},
		{"a mark of the connection", head + "ct mark set 0x1", "", "ct set"},
		{"the time to live", head + "ip ttl set 64", "", "payload set"},
		{"only counts", head + "ip daddr 10.0.0.0/8 counter", "", "counter"},
		{"counts what it accepts", head + "ip daddr 10.0.0.0/8 counter accept", "", ""},
		{"counts another protocol", head + "meta l4proto icmp counter", "", ""},
		{"a limit", head + "limit rate over 100 mbytes/second drop", "", "drop"},
		{"reject", head + "tcp dport 80 reject", "", "reject"},
		{"synproxy", head + "ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm", "", "synproxy"},
		{"a check of the way back", "type filter hook prerouting priority -300; policy accept;\nfib saddr . iif oif missing drop", "", ""},
		{"the other address", "type filter hook prerouting priority -300; policy accept;\nfib daddr oif missing drop", "", "drop"},
		{"a set of addresses that are learned", head + "tcp dport 80 add @seen { ip saddr }", "set seen {\ntype ipv4_addr\nsize 100\nflags dynamic,timeout\n}", "dynset"},
		{"postrouting", "type filter hook postrouting priority 0; policy accept;\nlog", "", "log"},
		{"input", "type filter hook input priority 0; policy drop;\nlog", "", ""},
		{"translation", "type nat hook postrouting priority 100; policy accept;\nip saddr 10.0.0.0/8 masquerade", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns := tablestest.NewNamespace(t, "nft")
			ns.Feed(t, "table inet wall {\n"+c.more+"\nchain way {\n"+c.chain+"\n}\n}\ntable inet felixlike-x {\nchain way {\n"+drop+"\n}\n}\n", "nft", "-f", "-")
			want := ""
			if c.what != "" {
				want = "chain way of table inet wall: " + c.what
			}
			if got := actsIn(t, ns); got != want {
				t.Errorf("found %q, want %q", got, want)
			}
		})
	}
}

// TestActsOfIPTables: rules of kube-proxy and Docker for other packets are not reported, in the nft variant of iptables.
func TestActsOfIPTables(t *testing.T) {
	const save = `*%s
:PREROUTING ACCEPT [0:0]
:FORWARD %s [0:0]
:POSTROUTING ACCEPT [0:0]
:flx-forward - [0:0]
:DOCKER-USER - [0:0]
:KUBE-FORWARD - [0:0]
%s
COMMIT
`
	for _, c := range []struct{ name, table, policy, rules, what string }{
		{"kube-proxy", "filter", "ACCEPT", `-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j REJECT
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`, ""},
		{"Docker", "filter", "DROP", `-A FORWARD -j DOCKER-USER
-A FORWARD -m comment --comment x -j flx-forward
-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -i docker0 ! -o docker0 -j ACCEPT
-A DOCKER-USER -j RETURN
-A flx-forward -j DROP`, ""},
		{"Docker before ours", "filter", "DROP", "-A FORWARD -j DOCKER-USER", "drop"},
		{"a drop before ours", "filter", "ACCEPT", "-A FORWARD -s 192.0.2.1/32 -j DROP\n-A FORWARD -j flx-forward", "drop"},
		{"a drop behind ours", "filter", "ACCEPT", "-A FORWARD -j flx-forward\n-A FORWARD -s 192.0.2.1/32 -j DROP", ""},
		{"segment sizes", "mangle", "ACCEPT", "-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu", ""},
		{"segment sizes without flags are refused; a mark", "mangle", "ACCEPT", "-A FORWARD -p tcp -j MARK --set-xmark 0x1/0x1", "MARK"},
		{"counts", "filter", "ACCEPT", "-A FORWARD -d 10.0.0.0/8", "counter"},
		{"ours at another hook", "mangle", "ACCEPT", "-A FORWARD -j flx-forward\n-A POSTROUTING -j flx-forward\n-A POSTROUTING -j MARK --set-xmark 0x1/0x1", "MARK"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns := tablestest.NewNamespace(t, "iptables-nft", "iptables-nft-restore")
			text := fmt.Sprintf(save, c.table, c.policy, c.rules)
			if c.table == "filter" {
				text = strings.NewReplacer(":PREROUTING ACCEPT [0:0]\n", "", ":POSTROUTING ACCEPT [0:0]\n", "").Replace(text)
			}
			ns.Feed(t, text, "iptables-nft-restore")
			hook := "FORWARD"
			if strings.Contains(c.name, "another hook") {
				hook = "POSTROUTING"
			}
			want := ""
			if c.what != "" {
				want = "chain " + hook + " of table ip " + c.table + ": " + c.what
			}
			if got := actsIn(t, ns); got != want {
				t.Errorf("found %q, want %q", got, want)
			}
		})
	}
}
