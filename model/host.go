package model

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/netip"
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

// FailsafePort is a range of ports that no policy closes for the node itself.
type FailsafePort struct {
	PortRange
	// Net has the other hosts. If it is not valid, these are all.
	Net netip.Prefix `json:"net,omitzero"`
}

// String returns the ports as PortRange does, with the hosts as in "tcp/22@192.0.2.0/24".
func (p FailsafePort) String() string {
	if !p.Net.IsValid() {
		return p.PortRange.String()
	}
	return p.PortRange.String() + "@" + p.Net.String()
}

// Covers reports whether all packets of o are among those of p.
func (p FailsafePort) Covers(o FailsafePort) bool {
	hosts := !p.Net.IsValid() || o.Net.IsValid() && p.Net.Bits() <= o.Net.Bits() && p.Net.Contains(o.Net.Addr())
	return hosts && p.Protocol == o.Protocol && p.First <= o.First && o.Last <= p.Last
}

// Failsafe are the ports that no policy closes for the node itself.
type Failsafe struct {
	In  []FailsafePort `json:"in,omitempty"`
	Out []FailsafePort `json:"out,omitempty"`
	// GRE keeps tunnels of that type open.
	GRE bool `json:"gre,omitempty"`
}

// Ports returns the ports of one direction.
func (f Failsafe) Ports(d Direction) []FailsafePort {
	if d == Egress {
		return f.Out
	}
	return f.In
}

// Open reports whether a packet of one direction to a port passes. peer is the address of its other end.
func (f Failsafe) Open(d Direction, peer netip.Addr, protocol Protocol, port uint16) bool {
	packet := FailsafePort{PortRange{protocol, port, port}, netip.PrefixFrom(peer, peer.BitLen())}
	return slices.ContainsFunc(f.Ports(d), func(p FailsafePort) bool { return p.Covers(packet) })
}

// Ranges returns the ports of both directions.
func (f Failsafe) Ranges() (all []PortRange) {
	for _, p := range slices.Concat(f.In, f.Out) {
		all = append(all, p.PortRange)
	}
	return all
}

// Nets returns the prefixes of hosts that ports of both directions have.
func (f Failsafe) Nets() (all []netip.Prefix) {
	for _, p := range slices.Concat(f.In, f.Out) {
		if p.Net.IsValid() {
			all = append(all, p.Net)
		}
	}
	return all
}
