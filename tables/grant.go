package tables

import "github.com/felixlike/felixlike/model"

// MatchGrant matches packets for which a set has a grant. It looks up the list of policies of the pod, and the
// identity of the peer. Only nftables has it.
type MatchGrant struct {
	Family model.Family
	// Pod is the end of the packet whose policies are asked.
	Pod Side
	// Lists maps the addresses of pods to numbers of lists, and Peers the addresses of peers to identities. Without
	// Peers, the grants for every peer are asked.
	Lists, Peers string
	// Grants is a set of the kind Grants, or with AnyPort of the kind AnyPortGrants.
	Grants  string
	AnyPort bool
}

func (MatchGrant) isMatch()         {}
func (m MatchGrant) String() string { return text(m) }

func (m MatchGrant) appendTo(b []byte) []byte {
	b = append(append(b, "ip"...), m.Family.String()...)
	b = append(append(b, ' '), m.Pod.String()...)
	b = append(append(b, " in @"...), m.Lists...)
	if m.Peers != "" {
		b = append(append(b, ", peer in @"...), m.Peers...)
	}
	if !m.AnyPort {
		b = append(b, ", proto,dport"...)
	}
	return append(append(b, " granted by @"...), m.Grants...)
}

// Peer returns the end of the packet that is the peer's.
func (m MatchGrant) Peer() Side {
	if m.Pod == Source {
		return Destination
	}
	return Source
}
