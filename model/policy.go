package model

import (
	"cmp"
	"slices"
)

// Policy is a policy resolved to groups. Rules keep the order of the object.
type Policy struct {
	ID PolicyID `json:"id"`
	// Precedence orders the policies of the admin and the baseline tier.
	Precedence Precedence `json:"precedence,omitzero"`
	// PreDNAT is set for a policy of nodes whose ingress is judged before DNAT. It has no egress.
	PreDNAT bool   `json:"preDNAT,omitempty"`
	Ingress []Rule `json:"ingress,omitempty"`
	Egress  []Rule `json:"egress,omitempty"`
}

// Precedence is the place of a policy among those of its tier: a lower Tier, then a
// lower priority, is evaluated first; of equal ones the order of identifiers decides. Tier
// is the priority of a tier of Antrea's API; ClusterNetworkPolicies of Kubernetes have
// the places TierOfAdmin and TierOfBaseline. It is zero for NetworkPolicies.
type Precedence struct {
	Tier     uint16  `json:"tier"`
	Priority float64 `json:"priority"`
}

// Compare orders by tier, then priority.
func (p Precedence) Compare(o Precedence) int {
	return cmp.Or(cmp.Compare(p.Tier, o.Tier), cmp.Compare(p.Priority, o.Priority))
}

// The places of ClusterNetworkPolicies of Kubernetes among the tiers of Antrea's API: behind
// the last ordinary one, 250, and behind the baseline, 253.
const (
	TierOfAdmin    = 251
	TierOfBaseline = 254
)

// PrecedenceBeforeTiers is before all tiers and priorities of objects (PolicyID.BeforeTiers).
func PrecedenceBeforeTiers() Precedence { return Precedence{Tier: 0, Priority: -1} }

// Rules returns the rules of one direction.
func (p *Policy) Rules(d Direction) []Rule {
	if d == Ingress {
		return p.Ingress
	}
	return p.Egress
}

// Logs reports whether one of the policy's rules has Log.
func (p *Policy) Logs() bool {
	logs := func(r Rule) bool { return r.Log }
	return slices.ContainsFunc(p.Ingress, logs) || slices.ContainsFunc(p.Egress, logs)
}
