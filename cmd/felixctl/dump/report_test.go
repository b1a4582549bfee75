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
	const nft = "table inet t {\n\tchain c {\n\t\tRULE\n\t}\n}\n"
	const saved = "*mangle\n:flx-c - [0:0]\n-A flx-c RULE\nCOMMIT\n"
	fill := func(form string, with ...string) string { return strings.NewReplacer(with...).Replace(form) }
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

// TestAnswersAreTyped: each listing's rule that answers parses as one, is written the same
// way again, and rules that only look alike do not parse.
func TestAnswersAreTyped(t *testing.T) {
	nft := func(rule string) string { return "table inet t {\n\tchain c {\n\t\t" + rule + "\n\t}\n}\n" }
	saved := func(rule string) string { return "*filter\n:flx-c - [0:0]\n-A flx-c " + rule + "\nCOMMIT\n" }
	const limit, savedLimit = "limit rate 500/second burst 500 packets counter packets 3 bytes 0 ", "-m limit --limit 500/sec --limit-burst 500 "
	reset, prohibited := tables.Reject{With: tables.TCPReset, PerSecond: 500}, tables.Reject{With: tables.AdminProhibited, PerSecond: 500}
	of := func(f model.Family) tables.Reject {
		r := prohibited
		r.Family = f
		return r
	}
	for name, c := range map[string]struct {
		text string
		want tables.Action
	}{
		"reset":                   {nft("meta l4proto tcp " + limit + "reject with tcp reset"), reset},
		"prohibited":              {nft("meta l4proto != tcp " + limit + "reject with icmpx admin-prohibited"), prohibited},
		"prohibited, IPv6":        {nft("meta nfproto ipv6 " + limit + "reject with icmpx admin-prohibited"), of(model.IPv6)},
		"another error":           {nft(limit + "reject with icmpx port-unreachable"), nil},
		"without a limit":         {nft("meta l4proto tcp reject with tcp reset"), nil},
		"a reset for anything":    {nft(limit + "reject with tcp reset"), nil},
		"saved reset":             {saved("-p tcp " + savedLimit + "-j REJECT --reject-with tcp-reset"), reset},
		"saved prohibited":        {saved("! -p tcp " + savedLimit + "-j REJECT --reject-with icmp-admin-prohibited"), of(model.IPv4)},
		"saved prohibited, IPv6":  {saved("! -p tcp " + savedLimit + "-j REJECT --reject-with icmp6-adm-prohibited"), of(model.IPv6)},
		"saved, another":          {saved("! -p tcp " + savedLimit + "-j REJECT --reject-with icmp-port-unreachable"), nil},
		"saved, without a limit":  {saved("-p tcp -j REJECT --reject-with tcp-reset"), nil},
		"saved, of another burst": {saved("-p tcp -m limit --limit 500/sec -j REJECT --reject-with tcp-reset"), nil},
	} {
		s, err := Parse(strings.NewReader(c.text))
		if err != nil || len(s.Tables) != 1 || len(s.Tables[0].Chains) != 1 || len(s.Tables[0].Chains[0].Rules) != 1 {
			t.Errorf("%s: %v\n%s", name, err, c.text)
			continue
		}
		rule := s.Tables[0].Chains[0].Rules[0]
		if typed := rule.Foreign == ""; typed != (c.want != nil) || typed && rule.Action != c.want {
			t.Errorf("%s: %+v, want %v", name, rule, c.want)
		}
		if c.want == nil {
			continue
		}
		again, err := Parse(strings.NewReader(text(t, s, TextOptions{})))
		if err != nil || again.Tables[0].Chains[0].Rules[0].Action != rule.Action {
			t.Errorf("%s: written as %s: %v", name, text(t, s, TextOptions{}), err)
		}
	}
}
