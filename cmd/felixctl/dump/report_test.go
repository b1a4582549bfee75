package dump

import (
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// reportRule is the rule in the listings below.
func reportRule() tables.Report {
	return tables.Report{Group: 26552, Prefix: "denied-in", Length: 128, PerSecond: 100}
}

// TestReportsAreTyped: each listing's report rule parses as a report, and rules that
// only look alike do not.
func TestReportsAreTyped(t *testing.T) {
	const json = `{"nftables": [{"table": {"family": "inet", "name": "t"}}, {"chain": {"family": "inet", "table": "t", "name": "c"}}, {"rule": {"family": "inet", "table": "t", "chain": "c", "expr": [LIMIT, {"counter": {"packets": 3, "bytes": 0}}, LOG]}}]}`
	const nft = "table inet t {\n\tchain c {\n\t\tRULE\n\t}\n}\n"
	const saved = "*mangle\n:flx-c - [0:0]\n-A flx-c RULE\nCOMMIT\n"
	fill := func(form string, with ...string) string { return strings.NewReplacer(with...).Replace(form) }
	const limit, log = `{"limit": {"rate": 100, "burst": 100, "per": "second"}}`, `{"log": {"prefix": "denied-in", "group": 26552, "snaplen": 128}}`
	for name, c := range map[string]struct {
		text  string
		typed bool
	}{
		"nft":             {fill(nft, "RULE", `limit rate 100/second burst 100 packets counter packets 3 bytes 0 log prefix "denied-in" group 26552 snaplen 128`), true},
		"no snaplen":      {fill(nft, "RULE", `limit rate 100/second burst 100 packets log prefix "denied-in" group 26552`), false},
		"with threshold":  {fill(nft, "RULE", `limit rate 100/second burst 100 packets log prefix "denied-in" group 26552 snaplen 128 queue-threshold 5`), false},
		"a minute":        {fill(nft, "RULE", `limit rate 100/minute burst 100 packets log prefix "denied-in" group 26552 snaplen 128`), false},
		"another burst":   {fill(nft, "RULE", `limit rate 100/second burst 7 packets log prefix "denied-in" group 26552 snaplen 128`), false},
		"over":            {fill(nft, "RULE", `limit rate over 100/second burst 100 packets log prefix "denied-in" group 26552 snaplen 128`), false},
		"without a limit": {fill(nft, "RULE", `log prefix "denied-in" group 26552 snaplen 128`), false},
		"and drops":       {fill(nft, "RULE", `limit rate 100/second burst 100 packets log prefix "denied-in" group 26552 snaplen 128 drop`), false},
		"limit alone":     {fill(nft, "RULE", "limit rate 100/second drop"), false},
		"cut":             {fill(nft, "RULE", "limit rate"), false},
		"JSON":            {fill(json, "LIMIT", limit, "LOG", log), true},
		"JSON, inverted":  {fill(json, "LIMIT", strings.Replace(limit, `"per"`, `"inv": true, "per"`, 1), "LOG", log), false},
		"JSON, to syslog": {fill(json, "LIMIT", limit, "LOG", `{"log": {"prefix": "denied-in", "level": "info"}}`), false},
		"saved":           {fill(saved, "RULE", "-m limit --limit 100/sec --limit-burst 100 -j NFLOG --nflog-prefix denied-in --nflog-group 26552 --nflog-size 128"), true},
		"saved, no limit": {fill(saved, "RULE", "-j NFLOG --nflog-prefix denied-in --nflog-group 26552 --nflog-size 128"), false},
		"saved, limited":  {fill(saved, "RULE", "-m limit --limit 100/sec --limit-burst 100 -j DROP"), false},
		"saved, range":    {fill(saved, "RULE", "-m limit --limit 100/sec --limit-burst 100 -j NFLOG --nflog-prefix denied-in --nflog-group 26552 --nflog-range 128"), false},
		"saved, more":     {fill(saved, "RULE", "-m limit --limit 100/sec --limit-burst 100 -j NFLOG --nflog-prefix denied-in --nflog-group 26552 --nflog-size 128 --nflog-threshold 3"), false},
	} {
		s, err := Parse(strings.NewReader(c.text))
		if err != nil || len(s.Tables) != 1 || len(s.Tables[0].Chains) != 1 || len(s.Tables[0].Chains[0].Rules) != 1 {
			t.Errorf("%s: %v\n%s", name, err, c.text)
			continue
		}
		rule := s.Tables[0].Chains[0].Rules[0]
		if typed := rule.Foreign == "" && rule.Action == reportRule(); typed != c.typed {
			t.Errorf("%s: typed %t, want %t: %+v", name, typed, c.typed, rule)
		}
		if !c.typed {
			continue
		}
		again, err := Parse(strings.NewReader(text(t, s, TextOptions{})))
		if err != nil || again.Tables[0].Chains[0].Rules[0].Action != rule.Action {
			t.Errorf("%s: written and read again: %v", name, err)
		}
	}
}

// A rule that reports is for both families.
func TestReportsOfBothFamilies(t *testing.T) {
	if r := reportRule(); r.String() == "" || (tables.Rule{Action: r}).Family() != model.Family(0) {
		t.Error("a report is for one family")
	}
}
