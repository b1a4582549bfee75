package model

import "fmt"

// The types below have their name in JSON, and no number.

// MarshalText writes the tier's name.
func (t Tier) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads a tier's name.
func (t *Tier) UnmarshalText(b []byte) error {
	return named(t, b, "tier", TierAdmin, TierNetworkPolicy, TierBaseline)
}

// MarshalText writes the action's name.
func (a Action) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads an action's name.
func (a *Action) UnmarshalText(b []byte) error {
	return named(a, b, "action", Allow, Deny, Pass, Reject, Next)
}

// MarshalText writes the kind's name.
func (k GroupKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads a kind's name.
func (k *GroupKind) UnmarshalText(b []byte) error {
	return named(k, b, "kind", Addresses, Networks, AddressPorts, Loops, Senders)
}

// named finds the value that has the name.
func named[T fmt.Stringer](into *T, name []byte, what string, values ...T) error {
	for _, v := range values {
		if v.String() == string(name) {
			*into = v
			return nil
		}
	}
	return fmt.Errorf("unknown %s %q", what, name)
}
