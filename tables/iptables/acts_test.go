package iptables

import (
	"fmt"
	"strings"
	"testing"
)

// TestLegacyActs: rules that may do something with packets of established connections of pods are found, others are
// not. A second call reads a table again only if its size has changed.
func TestLegacyActs(t *testing.T) {
	h := newHost(t, Legacy)
	l := NewLegacyActs(h.FD, "gw0")
	t.Cleanup(l.Close)
	check := func(when string, want ...string) {
		t.Helper()
		saves := l.tools.saves
		for range 2 {
			found, err := l.Find(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := strings.Join(found, "\n"), strings.Join(want, "\n"); got != want {
				t.Errorf("%s:\n%s\nwant\n%s", when, got, want)
			}
		}
		if again := l.tools.saves; again > saves+6 {
			t.Errorf("%s: %d reads", when, again-saves)
		}
		read := l.tools.saves
		if _, err := l.Find(t.Context(), false); err != nil || l.tools.saves != read {
			t.Errorf("%s: %d reads though nothing changed, %v", when, l.tools.saves-read, err)
		}
	}
	check("no table")
	for i, c := range []struct{ table, rules, found string }{
		{"filter", `:KUBE-FORWARD - [0:0]
-A FORWARD -m comment --comment "kubernetes -j DROP" -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j REJECT
-A FORWARD -p icmp -j DROP
-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -i docker+ ! -o docker0 -j DROP
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`, ""},
		{"filter", ":x - [0:0]\n:y - [0:0]\n-A FORWARD -s 192.0.2.0/24 -j x\n-A x -g y\n-A x -j DROP\n-A y -j RETURN", ""},
		{"filter", ":x - [0:0]\n-A FORWARD -s 192.0.2.0/24 -j x\n-A x -j DROP", "FORWARD: -j DROP"},
		{"filter", ":flx-x - [0:0]\n-A FORWARD -j flx-x\n-A FORWARD -s 192.0.2.0/24 -j DROP\n-A flx-x -j DROP", ""},
		{"filter", "-A FORWARD -i gw+ -s 192.0.2.0/24 -j DROP", "FORWARD: -s 192.0.2.0/24 -i gw+ -j DROP"},
		{"filter", "-A FORWARD -s 192.0.2.0/24", "FORWARD: -s 192.0.2.0/24"},
		{"mangle", "-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu", ""},
		{"mangle", "-A POSTROUTING -j MARK --set-xmark 0x1/0x1", "POSTROUTING: -j MARK --set-xmark 0x1/0x1"},
		{"raw", "-A PREROUTING -m rpfilter --validmark --invert -j DROP", ""},
		{"raw", "-A PREROUTING -p udp -j NOTRACK", "PREROUTING: -p udp -j "},
		{"nat", "-A POSTROUTING -s 10.0.0.0/8 -j MASQUERADE", ""},
	} {
		for _, table := range []string{"filter", "mangle", "raw", "nat"} {
			h.Run(t, "iptables-legacy", "-t", table, "-F")
			h.Run(t, "iptables-legacy", "-t", table, "-X")
		}
		h.Feed(t, fmt.Sprintf("*%s\n%s\nCOMMIT\n", c.table, c.rules), "iptables-legacy-restore", "--noflush")
		found, err := l.Find(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(found, "\n")
		want := fmt.Sprintf("table %s of iptables-legacy (IPv4), chain %s", c.table, c.found)
		if c.found == "" && got != "" || c.found != "" && !strings.HasPrefix(got, want) {
			t.Errorf("%d, %s: found %q, want %q", i, c.rules, got, want)
		}
	}
	h.Run(t, "iptables-legacy", "-t", "raw", "-F")
	h.Run(t, "iptables-legacy", "-P", "FORWARD", "DROP")
	if found, err := l.Find(t.Context(), true); err != nil || len(found) != 1 || !strings.HasSuffix(found[0], "chain FORWARD: policy DROP") {
		t.Errorf("policy: %q, %v", found, err)
	}
	h.Run(t, "iptables-legacy", "-A", "FORWARD", "-m", "conntrack", "--ctstate", "ESTABLISHED", "-j", "ACCEPT")
	check("policy, and established are accepted")
}
