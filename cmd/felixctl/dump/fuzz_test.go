package dump

import (
	"bytes"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
)

// The parsers accept or refuse any input without a panic or a hang. A parsed state can
// be written, and parses to the same state again.
func FuzzParse(f *testing.F) {
	for _, file := range []string{
		"foreign.nft", "foreign.save", foreignFlows, "openflow.nft", "senders.nft", "ipsets.save", "iptables.save",
	} {
		b := load(f, file)
		f.Add(b)
		f.Add(b[:len(b)/3])
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		s, err := Parse(bytes.NewReader(in))
		if s == nil {
			t.Fatal("no state")
		}
		s.Count()
		written := text(t, s, TextOptions{})
		if err != nil {
			return
		}
		// Foreign text may parse differently the second time, typed objects may not.
		again, err := Parse(strings.NewReader(written))
		if err != nil {
			return
		}
		for i, table := range s.Tables {
			if i < len(again.Tables) && len(s.Tables) == len(again.Tables) && table.Dialect == NFT {
				sameRules(t, table, again.Tables[i])
			}
		}
	})
}

func sameRules(t *testing.T, a, b *Table) {
	for i, c := range a.Chains {
		if i >= len(b.Chains) || len(b.Chains[i].Rules) != len(c.Rules) {
			return
		}
		for j, r := range c.Rules {
			if got := b.Chains[i].Rules[j]; r.Foreign == "" && got.Foreign == "" && nftText(got.Rule, "") != nftText(r.Rule, "") {
				t.Errorf("%s comes back as %s", r, got)
			}
		}
	}
}

// A typed rule of iptables and its text are one.
func FuzzSavedRule(f *testing.F) {
	for _, file := range []string{"iptables.save", "foreign.save"} {
		for line := range strings.Lines(string(load(f, file))) {
			if _, rule, found := strings.Cut(line, "-A "); found {
				f.Add(strings.TrimSpace(rule))
			}
		}
	}
	f.Fuzz(func(t *testing.T, line string) {
		chains := map[string]*Chain{"flx-to-pods": {}}
		r := parseSavedRule(line, model.IPv4, chains)
		if r.Foreign != "" {
			return
		}
		again := parseSavedRule(r.IPTables(), model.IPv4, chains)
		if again.Foreign != "" || again.IPTables() != r.IPTables() {
			t.Errorf("%q is %s, and then %s", line, r.IPTables(), again.IPTables())
		}
	})
}
