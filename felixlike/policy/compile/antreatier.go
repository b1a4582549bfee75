package compile

import (
	"strings"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// The tiers that always exist, and the limits of the API.
const (
	antreaDefaultTier      = "application"
	antreaBaselineTier     = "baseline"
	antreaBaselinePriority = 253
	// AntreaMaxTier is the greatest priority of other tiers.
	AntreaMaxTier = 249

	antreaMinPriority, antreaMaxPriority = 1, 10000
)

// AntreaTier returns the priority of a tier that always exists. Its name may be spelt with capital
// letters.
func AntreaTier(name string) (uint16, bool) {
	switch strings.ToLower(name) {
	case "emergency":
		return 50, true
	case "securityops":
		return 100, true
	case "networkops":
		return 150, true
	case "platform":
		return 200, true
	case antreaDefaultTier, "":
		return 250, true
	case antreaBaselineTier:
		return antreaBaselinePriority, true
	}
	return 0, false
}

// AntreaTiers returns the names of the tiers that always exist, in their order.
func AntreaTiers() []string {
	return []string{"emergency", "securityops", "networkops", "platform", antreaDefaultTier, antreaBaselineTier}
}

// AntreaTierProblems reports a tier that cannot be in force.
func AntreaTierProblems(t *antrea.Tier) []model.Problem {
	r := Report{Object: t.ID().Ref()}
	if fixed, is := AntreaTier(t.Name); is {
		if t.Spec.Priority != int32(fixed) {
			r.Add("spec.priority", "%d: tier %s always has priority %d", t.Spec.Priority, t.Name, fixed)
		}
	} else if t.Spec.Priority < 0 || t.Spec.Priority > AntreaMaxTier {
		r.Add("spec.priority", "%d is not between 0 and %d; policies of the tier fail closed", t.Spec.Priority, AntreaMaxTier)
	}
	return r.Problems
}

// baseline reports whether the policy is in the tier behind NetworkPolicies.
func (c *antreaCompiler) baseline() bool {
	priority, fixed := AntreaTier(c.spec.Tier)
	return fixed && priority == antreaBaselinePriority
}

// place returns the place of the policy in the order. Without a valid tier or priority the policy
// is closed and the first of all, or the first of its tier.
func (c *antreaCompiler) place() (model.Tier, model.Precedence) {
	tier := model.TierAdmin
	var at model.Precedence
	if fixed, is := AntreaTier(c.spec.Tier); is {
		at.Tier = fixed
		if c.baseline() {
			tier = model.TierBaseline
		}
	} else {
		id := antrea.ID{Kind: antrea.KindTier, Name: c.spec.Tier}
		c.uses.Add(id)
		switch t, _ := c.objects(id).(*antrea.Tier); {
		case t == nil:
			c.close("spec.tier", "tier %q does not exist", c.spec.Tier)
		case len(AntreaTierProblems(t)) > 0:
			c.close("spec.tier", "tier %q has no valid priority", c.spec.Tier)
		default:
			at.Tier = uint16(t.Spec.Priority)
		}
	}
	if p := c.spec.Priority; p >= antreaMinPriority && p <= antreaMaxPriority {
		at.Priority = p
	} else {
		c.close("spec.priority", "%v is not between %d and %d", p, antreaMinPriority, antreaMaxPriority)
	}
	return tier, at
}
