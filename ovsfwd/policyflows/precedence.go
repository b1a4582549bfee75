package policyflows

import (
	"math"

	"github.com/felixlike/felixlike/model"
)

// The priorities of the NetworkPolicy tier. A flow cannot carry more than some
// 4,000 conjunctions (64 kB of actions), so rules go to lanes of a priority
// each; all of them are above the flow that a fulfilled conjunction leads to,
// because one in between would hide it.
const (
	firstLane = 200
	maxLanes  = 18
	// lanesBelow is how many lanes are at firstLane and below it. The other ones are above
	// firstLane, and below closed pods.
	lanesBelow = 10
	// laneSize is what a lane may have; lanes are added so that each has some
	// laneFill, since hashing does not fill them equally.
	laneSize = 3900
	laneFill = 3000
)

// lanes returns how many lanes so many rules need.
func lanes(rules int) int {
	if rules <= laneSize {
		return 1
	}
	return min((rules+laneFill-1)/laneFill, maxLanes)
}

// lanePriority returns the priority of a lane.
func lanePriority(lane uint16) uint16 {
	if lane < lanesBelow {
		return firstLane - lane
	}
	return firstLane + lane - lanesBelow + 1
}

// lane returns the lane of a rule. It follows from the rule and the number of
// lanes alone, and where a lane is added only the rules that move there move
// (Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm").
func lane(r RuleID, lanes int) uint16 {
	key, last, next := r.hash(), int64(-1), int64(0)
	for next < int64(lanes) {
		last = next
		key = key*2862933555777941757 + 1
		next = int64(float64(last+1) * (float64(int64(1)<<31) / float64(key>>33+1)))
	}
	return uint16(last)
}

// ordered is a rule of a tier whose rules are evaluated in order.
type ordered struct {
	precedence model.Precedence
	index      int
	action     model.Action
	// within is the namespace of all pods that the rule applies to, or "" if they may be in any.
	within string
	// ports are all packets that the rule can match; nil if there is no such bound.
	ports []portMask
}

// orderedTier is how the priorities of such a tier are found: the wished one is
// base - tier*perTier - policy*perPolicy - rule, at most highest. As many rules as
// alone have a priority of their own.
type orderedTier struct {
	base, perTier, perPolicy, highest, alone int
	// perAdmin is perPolicy of ClusterNetworkPolicies of the admin tier. All their
	// priorities, up to 1000, fit below those of the other tiers.
	perAdmin int
}

// adminPriorities and baselinePriorities are the reference's: 14000 for rule 0
// of policy 10 in tier 250, and 80 for rule 0 of baseline policy 10. Above them
// are established connections and closed pods, and for the baseline isolation.
//
// Each priority costs a flow for each pod and each member. So with more than 250 rules
// they share priorities (sharing.go).
func adminPriorities() orderedTier    { return orderedTier{65000, 200, 100, 64899, 250, 14} }
func baselinePriorities() orderedTier { return orderedTier{180, 0, 10, 180, 180, 0} }

// assign returns the priorities of rules that are given in their order. Up to alone
// rules have the wished ones as far as they fall strictly; more rules share. Zero is for
// those that there is no room for.
func (t orderedTier) assign(rules []ordered) []uint16 {
	if len(rules) > t.alone {
		return t.share(rules)
	}
	levels, above, below := make([]int, len(rules)), t.highest+1, 0
	for i, r := range rules {
		levels[i] = min(t.wish(r), above-1)
		above = levels[i]
	}
	priorities := make([]uint16, len(rules))
	for i := len(rules) - 1; i >= 0; i-- {
		below = max(levels[i], below+1)
		priorities[i] = uint16(below)
	}
	return priorities
}

// wish returns the priority that a rule would have alone.
func (t orderedTier) wish(r ordered) int {
	perPolicy := t.perPolicy
	if r.precedence.Tier == model.TierOfAdmin {
		perPolicy = t.perAdmin
	}
	return t.base - int(r.precedence.Tier)*t.perTier - int(math.Round(r.precedence.Priority*float64(perPolicy))) - r.index
}
