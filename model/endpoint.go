package model

import (
	"iter"
	"slices"
)

// Endpoint is a pod of this node as policy sees it: which policies apply.
// The interface it is attached by is an Attachment.
type Endpoint struct {
	ID      PodID   `json:"id"`
	Ingress Applied `json:"ingress"`
	Egress  Applied `json:"egress"`
}

// Applied returns the policies of one direction.
func (e *Endpoint) Applied(d Direction) Applied {
	if d == Ingress {
		return e.Ingress
	}
	return e.Egress
}

// Applied lists the policies that apply to an endpoint in one direction, tier
// by tier. Admin and Baseline are in order of evaluation, which is that of the
// policies' Precedence, then of their identifiers; NetworkPolicies are sorted by
// identifier and isolate the endpoint when there is at least one, whether or not
// it has rules.
type Applied struct {
	Admin           []PolicyID `json:"admin,omitempty"`
	NetworkPolicies []PolicyID `json:"networkPolicies,omitempty"`
	Baseline        []PolicyID `json:"baseline,omitempty"`
}

// Isolated reports whether a NetworkPolicy isolates the direction.
func (a Applied) Isolated() bool { return len(a.NetworkPolicies) > 0 }

// Empty reports whether no policy of any tier applies.
func (a Applied) Empty() bool {
	return len(a.Admin) == 0 && len(a.NetworkPolicies) == 0 && len(a.Baseline) == 0
}

// All yields every policy, tier by tier.
func (a Applied) All() iter.Seq[PolicyID] {
	return func(yield func(PolicyID) bool) {
		for _, ids := range [...][]PolicyID{a.Admin, a.NetworkPolicies, a.Baseline} {
			for _, id := range ids {
				if !yield(id) {
					return
				}
			}
		}
	}
}

// Equal reports whether both list the same policies.
func (a Applied) Equal(o Applied) bool {
	return slices.Equal(a.Admin, o.Admin) && slices.Equal(a.NetworkPolicies, o.NetworkPolicies) && slices.Equal(a.Baseline, o.Baseline)
}
