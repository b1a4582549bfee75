package model

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestPublicKey: only 32 bytes in base64 are a key, and a node without one has no field.
func TestPublicKey(t *testing.T) {
	const good = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg="
	key, err := ParsePublicKey(good)
	if err != nil || key.String() != good {
		t.Fatalf("%s, %v", key, err)
	}
	for _, bad := range []string{"", "x", good[1:], good + "=", good + "\n", " " + good, strings.Repeat("A", 43) + "=", strings.ReplaceAll(good, "8Dg=", "8Dh="), "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8DgA"} {
		if key, err := ParsePublicKey(bad); err == nil || !key.IsZero() {
			t.Errorf("%q is a key", bad)
		}
	}
	for _, n := range []Node{{Name: "n"}, {Name: "n", PublicKey: key}} {
		text, err := json.Marshal(n)
		var back Node
		if err != nil || json.Unmarshal(text, &back) != nil || back.PublicKey != n.PublicKey || strings.Contains(string(text), "publicKey") == n.PublicKey.IsZero() {
			t.Errorf("%s, %v, %v", text, back, err)
		}
	}
}
