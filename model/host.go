package model

// HostPolicies are the policies that apply to this node itself, its processes and pods in its network: their lists in
// both directions, the policies and the groups in their rules. The lists have no NetworkPolicies. It is never changed.
type HostPolicies struct {
	Ingress Applied `json:"ingress"`
	Egress  Applied `json:"egress"`
	// Policies are sorted by identifier.
	Policies []*Policy `json:"policies,omitempty"`
	// Groups are sorted by identifier.
	Groups []HostGroup `json:"groups,omitempty"`
}

// HostGroup is a group with its members, sorted.
type HostGroup struct {
	Group
	Members []Member `json:"members,omitempty"`
}

// Applied returns the policies of one direction.
func (h *HostPolicies) Applied(d Direction) Applied {
	if d == Ingress {
		return h.Ingress
	}
	return h.Egress
}

// Empty reports whether no policy applies.
func (h *HostPolicies) Empty() bool { return h == nil || h.Ingress.Empty() && h.Egress.Empty() }

// HostPoliciesUpdate replaces the policies of this node itself. Later GroupUpdates change members of its groups.
type HostPoliciesUpdate struct{ Policies *HostPolicies }

func (HostPoliciesUpdate) isUpdate() {}
