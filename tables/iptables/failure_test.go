package iptables

import "testing"

// The error texts of the tools (1.8.9), and the parsed reasons.
func TestReason(t *testing.T) {
	for _, c := range []struct {
		stderr string
		line   int
		want   string
	}{
		{"iptables-restore: line 7 failed", 7, "the kernel refuses it and gives no reason"},
		{"iptables-nft-restore: line 2 failed: Bad rule (does a matching rule exist in that chain?).", 2, "Bad rule (does a matching rule exist in that chain?)."},
		{
			"iptables-nft-restore v1.8.9 (nf_tables): \nline 6: RULE_APPEND failed (Too many links): rule in chain FORWARD\nline 7: RULE_APPEND failed (Too many links): rule in chain x",
			6, "RULE_APPEND failed (Too many links): rule in chain FORWARD",
		},
		{
			"iptables-restore v1.8.9 (legacy): Set nono doesn't exist.\n\nError occurred at line: 3\nTry `iptables-restore -h' or 'iptables-restore --help' for more information.",
			3, "Set nono doesn't exist.",
		},
		{
			"iptables-restore v1.8.9 (legacy): \nThe \"nat\" table is not intended for filtering, the use of DROP is therefore inhibited.\n\n\nError occurred at line: 5\nTry `iptables-restore -h' or 'iptables-restore --help' for more information.",
			5, "The \"nat\" table is not intended for filtering, the use of DROP is therefore inhibited.",
		},
		{"Another app is currently holding the xtables lock. Stopped waiting after 1s.", 0, "Another app is currently holding the xtables lock. Stopped waiting after 1s."},
		{"", 0, "tool: exit code 1"},
	} {
		e := &exitError{program: "tool", code: 1, stderr: c.stderr}
		if got := e.reason(); got != c.want {
			t.Errorf("%q: reason %q, want %q", c.stderr, got, c.want)
		}
		if line, _ := lineNumber(c.stderr); line != c.line {
			t.Errorf("%q: line %d, want %d", c.stderr, line, c.line)
		}
	}
}
