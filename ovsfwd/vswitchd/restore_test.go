package vswitchd

import "testing"

// TestParseAwaitsFlows has answers of ovs-vswitchd 3.1.
func TestParseAwaitsFlows(t *testing.T) {
	const datapath = "system@ovs-system:\n  flows         : (current 5) (avg 0) (max 0) (limit 10000)\n  dump duration : 0ms\n  ufid enabled : true\n\n"
	for _, c := range []struct {
		name, shown string
		want        bool
	}{
		{"no bridge", "", false},
		{"a datapath without revalidators", datapath, true},
		{"a datapath with a revalidator", datapath + "  4: (keys 4)\n", false},
		{"a revalidator with other figures", datapath + "  4: (flows 4)\n", false},
	} {
		if got := parseAwaitsFlows(c.shown); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
