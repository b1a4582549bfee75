package iptables

import (
	"fmt"

	"github.com/felixlike/felixlike/internal/isolate"
)

// refusal is why a desired chain is quarantined.
type refusal struct {
	rule, reason string
	// Next is zero for a faulty chain, which a later try would not help.
	isolate.Retry
	// set is the quarantined set, which the Result lists in place of the chain.
	set string
}

// badSetError is why a rule that names a set cannot be programmed.
type badSetError struct{ set, reason string }

// Error names the set and the reason.
func (e *badSetError) Error() string {
	return fmt.Sprintf("set %s is quarantined: %s", e.set, e.reason)
}
