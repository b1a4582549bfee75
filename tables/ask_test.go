package tables

import (
	"net/netip"
	"slices"
	"testing"
)

func TestAsks(t *testing.T) {
	prefix := MatchPrefix{Side: Source, Prefix: netip.MustParsePrefix("10.0.0.0/8")}
	passed := MatchMark{Value: 1, Mask: 1, Negated: true}
	for _, c := range []struct {
		rule Rule
		want string
	}{
		{Rule{Action: Jump{Chain: "x"}}, "x"},
		{Rule{Action: Jump{Chain: "x"}, Matches: []Match{passed}}, "x"},
		{Rule{Action: Jump{Chain: "x"}, Matches: []Match{prefix}}, ""},
		{Rule{Action: Jump{Chain: "x"}, Matches: []Match{passed, prefix}}, ""},
		{Rule{Action: Goto{Chain: "x"}}, ""},
		{Rule{Action: Drop{}}, ""},
	} {
		if got := c.rule.Asks(); got != c.want {
			t.Errorf("%s asks %q, want %q", c.rule, got, c.want)
		}
	}
}

func TestAsked(t *testing.T) {
	chains := map[string]*Chain{}
	add := func(name string, asks ...string) {
		c := &Chain{Name: name}
		for _, to := range asks {
			c.Rules = append(c.Rules, Rule{Action: Jump{Chain: to}})
		}
		chains[name] = c
	}
	add("a", "b", "c", "b", "unknown")
	add("b", "d")
	add("c", "d", "a")
	add("d", "d")
	for name, want := range map[string][]string{"a": {"b", "c", "d"}, "b": {"d"}, "c": {"d", "a", "b"}, "d": nil} {
		var got []string
		for _, c := range chains[name].Asked(func(name string) *Chain { return chains[name] }) {
			got = append(got, c.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s asks %v, want %v", name, got, want)
		}
	}
}
