package model

import (
	"net/netip"
	"strings"
	"testing"
)

func TestPrefixGroup(t *testing.T) {
	seen := map[GroupID]string{}
	for _, text := range []string{
		"0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/9", "203.0.113.7/32", "::/0", "a00::/8", "2001:db8::/32", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128",
	} {
		id := PrefixGroup(netip.MustParsePrefix(text))
		if got, ok := id.Prefix(); !ok || got.String() != text {
			t.Errorf("%s: identifier %s has the prefix %s, %v", text, id, got, ok)
		}
		if other, twice := seen[id]; twice {
			t.Errorf("%s and %s have the identifier %s", text, other, id)
		}
		seen[id] = text
		if len(id) > 24 || id.Kind() != Networks || strings.Trim(string(id), "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
			t.Errorf("%s: identifier %s of kind %s", text, id, id.Kind())
		}
	}
	for _, id := range []GroupID{"", "c", "cAAAA", "c!", "n" + GroupID(strings.Repeat("A", 23)), "aone", "phttp", "c" + GroupID(strings.Repeat("_", 7))} {
		if p, ok := id.Prefix(); ok {
			t.Errorf("%q is the group of %s", id, p)
		}
	}
}
