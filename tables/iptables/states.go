package iptables

import "time"

// noteKey is a chain of ours, or one of the kernel's own, in a place.
type noteKey struct {
	place place
	chain string
	entry bool
}

// note says what others have changed in a chain.
type note struct {
	missing, foreign, altered, moved int
	// words says it if the counts do not.
	words   string
	noticed time.Time
}

// learnedKey is one rule of a chain in a place.
type learnedKey struct {
	place       place
	chain, hash string
}

// refusal is why a wanted chain is set aside.
type refusal struct {
	rule, reason string
	since        time.Time
	// next is the time of the next try. It is zero for a faulty chain, which a later try
	// would not help.
	next     time.Time
	attempts int
	// set is the faulty set, which is reported in place of the chain.
	set string
}
