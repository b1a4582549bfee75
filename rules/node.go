package rules

import "github.com/felixlike/felixlike/tables"

// NodeChains renders the chains of the node, which do not depend on policies: Static,
// Sources, Passed and Host.
type NodeChains struct {
	// gateway is the name of the gateway port's interface.
	gateway string
	// iptables is true for rules of iptables, where rejected packets are answered in
	// another table than that of policy.
	iptables bool
	// routed is true if packets between pods of different nodes may travel without a tunnel.
	routed bool
	// wireGuard is true if they travel encrypted.
	wireGuard bool
	// policyOnly is true if another CNI plugin owns the pods' interfaces (see PodSources).
	policyOnly bool
}

// Routed reports whether packets between pods of different nodes may travel without a tunnel.
func (n NodeChains) Routed() bool { return n.routed }

// in matches packets from the gateway port, and out those to it. If another CNI plugin owns the pods' interfaces, in
// matches packets of this node's pods.
func (n NodeChains) in() tables.Match {
	if n.policyOnly {
		return tables.MatchMark{Value: MarkBelieved, Mask: MarkBelieved}
	}
	return tables.MatchInterface{Side: tables.Source, Name: n.gateway}
}

// notIn is the opposite of in.
func (n NodeChains) notIn() tables.Match {
	if n.policyOnly {
		return tables.MatchMark{Value: MarkBelieved, Mask: MarkBelieved, Negated: true}
	}
	return tables.MatchInterface{Side: tables.Source, Name: n.gateway, Negated: true}
}

func (n NodeChains) out() tables.Match {
	return tables.MatchInterface{Side: tables.Destination, Name: n.gateway}
}
