package model

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
)

// HostPolicies are the policies that apply to this node itself, its processes and pods in its network: their lists in
// both directions, the policies and the groups in their rules. The lists have no NetworkPolicies. It is never changed.
type HostPolicies struct {
	Ingress Applied `json:"ingress"`
	Egress  Applied `json:"egress"`
	// PreDNAT are those whose ingress is judged before DNAT. They are not in Ingress.
	PreDNAT Applied `json:"preDNAT,omitzero"`
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

// Applied returns the policies of one direction, without those of PreDNAT.
func (h *HostPolicies) Applied(d Direction) Applied {
	if d == Ingress {
		return h.Ingress
	}
	return h.Egress
}

// Empty reports whether no policy applies.
func (h *HostPolicies) Empty() bool {
	return h == nil || h.Ingress.Empty() && h.Egress.Empty() && h.PreDNAT.Empty()
}

// Fingerprint identifies the lists and policies, not the members of groups; it is "" without policies.
func (h *HostPolicies) Fingerprint() string {
	if h.Empty() {
		return ""
	}
	data, err := json.Marshal(HostPolicies{Ingress: h.Ingress, Egress: h.Egress, PreDNAT: h.PreDNAT, Policies: h.Policies})
	if err != nil {
		return "" // no type of these has an error
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// SameMembers reports whether the groups of h and o have the same members.
func (h *HostPolicies) SameMembers(o *HostPolicies) bool {
	return slices.EqualFunc(h.Groups, o.Groups, func(a, b HostGroup) bool { return a.ID == b.ID && slices.Equal(a.Members, b.Members) })
}

// Differing returns the policies of h that o does not have, or has otherwise, and those of o alone, in order.
func (h *HostPolicies) Differing(o *HostPolicies) []PolicyID {
	text := func(h *HostPolicies) map[PolicyID]string {
		all := map[PolicyID]string{}
		if h != nil {
			for _, p := range h.Policies {
				data, _ := json.Marshal(p)
				all[p.ID] = string(data)
			}
		}
		return all
	}
	var ids []PolicyID
	ours, theirs := text(h), text(o)
	for id, s := range ours {
		if theirs[id] != s {
			ids = append(ids, id)
		}
	}
	for id := range theirs {
		if _, has := ours[id]; !has {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, PolicyID.Compare)
	return ids
}

// HostState is what is in force of the policies of this node itself.
type HostState struct {
	// Off is set while an administrator has turned them off.
	Off bool `json:"off,omitempty"`
	// Confirmed are the last policies with which this node was seen to work, nil if there are none.
	Confirmed *HostPolicies `json:"confirmed,omitempty"`
	// Withdrawn is the fingerprint of policies with which it did not work. Confirmed are in force in their place.
	Withdrawn string `json:"withdrawn,omitempty"`
}

// HostStateUpdate replaces the state.
type HostStateUpdate struct{ State HostState }

func (HostStateUpdate) isUpdate() {}

// HostPoliciesUpdate replaces the policies of this node itself. Later GroupUpdates change members of its groups.
type HostPoliciesUpdate struct{ Policies *HostPolicies }

func (HostPoliciesUpdate) isUpdate() {}

// Failsafe are the ports that no policy closes for the node itself.
type Failsafe struct {
	In  []PortRange `json:"in,omitempty"`
	Out []PortRange `json:"out,omitempty"`
	// GRE keeps tunnels of that type open.
	GRE bool `json:"gre,omitempty"`
}

// Ports returns the ports of one direction.
func (f Failsafe) Ports(d Direction) []PortRange {
	if d == Egress {
		return f.Out
	}
	return f.In
}
