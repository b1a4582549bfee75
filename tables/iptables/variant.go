package iptables

import "fmt"

// Variant is one of the two implementations of iptables in the kernel. They
// know nothing of each other: rules of both apply.
type Variant uint8

const (
	// Auto leaves the choice to Detect.
	Auto Variant = iota
	// Legacy is the kernel's own iptables (xtables), written a whole table at a
	// time under a lock.
	Legacy
	// NFT keeps iptables' rules in nftables.
	NFT
)

// String returns the name used in settings.
func (v Variant) String() string {
	switch v {
	case Auto:
		return "auto"
	case Legacy:
		return "legacy"
	case NFT:
		return "nft"
	}
	return fmt.Sprintf("variant(%d)", uint8(v))
}

// ParseVariant parses the name of a variant as it is used in settings.
func ParseVariant(s string) (Variant, error) {
	for _, v := range []Variant{Auto, Legacy, NFT} {
		if s == v.String() {
			return v, nil
		}
	}
	return 0, fmt.Errorf("unknown iptables variant %q: it must be %s, %s or %s", s, Auto, Legacy, NFT)
}
