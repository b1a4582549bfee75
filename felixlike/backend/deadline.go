package backend

import "time"

const (
	// policyTimeout bounds a full apply of policies.
	policyTimeout = 60 * time.Second
	// With more than manyRules rules on a node, the deadlines grow for each of the others: on a
	// busy machine, iptables-nft needs 2 to 4 ms a rule for a full load, and iptables-legacy
	// replaces all rules at each change (docs/reference/limits/size.md). With maxRules they grow no more.
	manyRules  = 10_000
	maxRules   = 70_000
	fullARule  = 4 * time.Millisecond
	quickARule = time.Millisecond
)

// MoreTime returns the time that policies with so many rules on a node add to the deadlines of a
// full apply and of an apply of changes.
func MoreTime(rules int) (full, change time.Duration) {
	more := time.Duration(max(0, min(rules, maxRules)-manyRules))
	return more * fullARule, more * quickARule
}

// Deadline returns how long a full apply of policies with so many rules may take.
func Deadline(rules int) time.Duration {
	full, _ := MoreTime(rules)
	return policyTimeout + full
}
