package backend

import (
	"strings"
	"testing"

	"github.com/felixlike/felixlike/ovsfwd/policyflows"
)

// TestCountedParts: the counters of a rule are the sums of its parts in the switch.
func TestCountedParts(t *testing.T) {
	key := RuleKey{"shop/db", "egress[0]"}
	c := Counted{key: {}}
	c.addHits(key, policyflows.Hits{Sessions: 100, Packets: 1000})
	c.addHits(key, policyflows.Hits{})
	if h := c[key]; h.Connections != 100 || h.Packets == nil || *h.Packets != 1000 {
		t.Errorf("%+v", h)
	}
}

// TestCountedByComment finds rules by whole comments, and by cut ones that fit one.
func TestCountedByComment(t *testing.T) {
	long := "shop/" + strings.Repeat("x", 150)
	c := Counted{
		{"shop/db", "ingress[0]"}: {}, {"shop/db", "ingress[1]"}: {Connections: 1},
		{long + "a", "ingress[0]"}: {}, {long, "egress[0]"}: {}, {long, "egress[1]"}: {},
	}
	for comment, packets := range map[string]uint64{
		"shop/db ingress[1]": 2, "shop/db": 4, "isolated ingress": 8, "shop/d": 16, long + "a": 32, long[:120]: 64,
	} {
		c.add(comment, packets)
	}
	for key, want := range map[RuleKey]uint64{
		{"shop/db", "ingress[0]"}: 0, {"shop/db", "ingress[1]"}: 3, {long + "a", "ingress[0]"}: 32, {long, "egress[0]"}: 0,
	} {
		if c[key].Connections != want {
			t.Errorf("%s: %d, want %d", key, c[key].Connections, want)
		}
	}
	if len(c) != 5 {
		t.Errorf("%d entries, want those that were there", len(c))
	}
}
