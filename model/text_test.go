package model

import "testing"

// TestActionText: each action can be read from its own text.
func TestActionText(t *testing.T) {
	for _, a := range []Action{Allow, Deny, Pass, Reject} {
		text, err := a.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		got := a + 1
		if err := got.UnmarshalText(text); err != nil || got != a {
			t.Errorf("%s: read as %v, %v", text, got, err)
		}
	}
}
