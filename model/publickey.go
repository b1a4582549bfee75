package model

import (
	"encoding/base64"
	"fmt"
)

// PublicKey is the public key of a node's WireGuard device (Curve25519). The zero PublicKey stands for none.
type PublicKey [32]byte

// ParsePublicKey parses the notation of wg(8): base64 of 32 bytes. No device has the key of zeros.
func ParsePublicKey(text string) (PublicKey, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	// The decoder skips line ends, and bits behind the last byte.
	if err != nil || len(raw) != len(PublicKey{}) || PublicKey(raw).IsZero() || PublicKey(raw).String() != text {
		return PublicKey{}, fmt.Errorf("%q is no public key of WireGuard, which is 32 bytes in base64", text)
	}
	return PublicKey(raw), nil
}

// IsZero reports whether there is no key.
func (k PublicKey) IsZero() bool { return k == PublicKey{} }

// String returns the notation of wg(8), or "" without a key.
func (k PublicKey) String() string {
	if k.IsZero() {
		return ""
	}
	return base64.StdEncoding.EncodeToString(k[:])
}

// MarshalText writes the notation of wg(8).
func (k PublicKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads it.
func (k *PublicKey) UnmarshalText(b []byte) (err error) {
	*k, err = ParsePublicKey(string(b))
	return err
}
