package tables

import "testing"

func TestDriftInWords(t *testing.T) {
	for want, d := range map[string]Drift{
		"":               {Part: "rule", Parts: "rules"},
		"1 rule missing": {Part: "rule", Parts: "rules", Missing: 1},
		"hook changed, 2 entries missing, 1 foreign entry, 3 entries changed, 1 entry moved": {
			Words: []string{"hook changed"}, Part: "entry", Parts: "entries", Missing: 2, Foreign: 1, Changed: 3, Moved: 1,
		},
		"deleted": {Words: []string{"deleted"}},
	} {
		if got := d.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
