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
}

// Routed reports whether packets between pods of different nodes may travel without a tunnel.
func (n NodeChains) Routed() bool { return n.routed }

// in matches packets from the gateway port, and out those to it.
func (n NodeChains) in() tables.Match {
	return tables.MatchInterface{Side: tables.Source, Name: n.gateway}
}

func (n NodeChains) out() tables.Match {
	return tables.MatchInterface{Side: tables.Destination, Name: n.gateway}
}
