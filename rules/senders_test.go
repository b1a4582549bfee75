package rules

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
)

// TestForgedWithoutMark: without the table of Senders, which sets the mark, nothing with a pod address is believed.
// With a tunnel between all nodes, the mark has no meaning.
func TestForgedWithoutMark(t *testing.T) {
	node := &model.Node{Name: "n1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.0.0/24")}}
	for _, routed := range []bool{false, true} {
		n := NewRenderer("gw", NFTablesNameLength).Routed(routed).Node()
		forged, believed := 0, 0
		for _, c := range n.Static(node) {
			for _, r := range c.Rules {
				text := ""
				for _, m := range r.Matches {
					text += m.String() + "; "
				}
				if r.Comment != "pod address from outside is forged" {
					continue
				}
				if forged++; strings.HasSuffix(text, "mark !0x8000000/0x8000000; ") {
					believed++
				}
			}
		}
		if forged != 2 || routed && believed != 2 || !routed && believed != 0 {
			t.Errorf("routed %v: %d rules against forged addresses, %d of them spare believed packets", routed, forged, believed)
		}
	}
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
