package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// TestForgedWithoutMark: without the table of Senders, which sets the mark, nothing with a pod address passes forward,
// neither to another node nor in a connection that was allowed. With a tunnel between all nodes, the mark has no meaning.
func TestForgedWithoutMark(t *testing.T) {
	node := &model.Node{Name: "n1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.0.0/24")}}
	for _, iptables := range []bool{false, true} {
		for _, routed := range []bool{false, true} {
			n := NewRenderer("gw", NFTablesNameLength).Routed(routed).Node()
			n.iptables = iptables
			for chain, chains := range map[string][]tables.Chain{ChainOutside: n.Static(node), ChainFromOutside: n.Host(Host{Node: node})} {
				want := []string{chain + " 2: ip4 src @pod-networks-4;", chain + " 3: ip6 src @pod-networks-6;"}
				if routed {
					want = []string{
						"forward 0: mark !0x8000000/0x8000000; iif !gw; ip4 src @pod-networks-4;",
						"forward 1: mark !0x8000000/0x8000000; iif !gw; ip6 src @pod-networks-6;",
					}
				}
				if forged := forgedIn(chains); !slices.Equal(forged, want) {
					t.Errorf("%s, routed %v: %q\nwant %q", chain, routed, forged, want)
				}
			}
		}
	}
}

// forgedIn returns the rules of chains that drop forged addresses of pods.
func forgedIn(chains []tables.Chain) []string {
	var all []string
	for _, c := range chains {
		for i, r := range c.Rules {
			if r.Comment != "pod address from outside is forged" {
				continue
			}
			text := fmt.Sprintf("%s %d:", c.Name, i)
			for _, m := range r.Matches {
				text += " " + m.String() + ";"
			}
			all = append(all, text)
		}
	}
	return all
}

// TestSendersSetNames: every name of an interface gives a name of a set that nft takes, and no two the same.
func TestSendersSetNames(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"eth0", "br-phy", "bond0.5", "bond0_5", "a@b", "a:b", "eth0é", "ens3f0np0"} {
		s := SendersSet(name, model.IPv4).Name
		if other := seen[s]; other != "" {
			t.Errorf("%s and %s both have the set %s", name, other, s)
		}
		seen[s] = name
		if strings.ContainsAny(s, "@: é") || len(s) > 128 {
			t.Errorf("%s has the set %s", name, s)
		}
	}
}
