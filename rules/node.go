package rules

import (
	"net/netip"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// NodeChains renders the chains of the node, which do not depend on policies: Static,
// Sources, Passed and Host.
type NodeChains struct {
	gateway gatewayPort
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

// gatewayPort matches packets by the way between host and pods.
type gatewayPort struct {
	// name is the name of the gateway port's interface.
	name string
	// policyOnly is true if another CNI plugin owns the pods' interfaces (see PodSources).
	policyOnly bool
}

// in matches packets from the gateway port, and out those to it. If another CNI plugin owns the pods' interfaces, in
// matches packets of this node's pods.
func (g gatewayPort) in() tables.Match {
	if g.policyOnly {
		return tables.MatchMark{Value: MarkBelieved, Mask: MarkBelieved}
	}
	return tables.MatchInterface{Side: tables.Source, Name: g.name}
}

// notIn is the opposite of in.
func (g gatewayPort) notIn() tables.Match {
	if g.policyOnly {
		return tables.MatchMark{Value: MarkBelieved, Mask: MarkBelieved, Negated: true}
	}
	return tables.MatchInterface{Side: tables.Source, Name: g.name, Negated: true}
}

func (g gatewayPort) out() tables.Match {
	return tables.MatchInterface{Side: tables.Destination, Name: g.name}
}

func (g gatewayPort) notOut() tables.Match {
	return tables.MatchInterface{Side: tables.Destination, Name: g.name, Negated: true}
}

// within matches packets of this node's pods to other nodes of the cluster.
func (g gatewayPort) within(pods netip.Prefix) []tables.Match {
	return []tables.Match{
		g.out(),
		tables.MatchPrefix{Side: tables.Source, Prefix: pods},
		tables.MatchPrefix{Side: tables.Destination, Prefix: pods, Negated: true},
	}
}

// keptToPeers keeps the source of packets of this node's pods that leave for other nodes without a tunnel.
func (g gatewayPort) keptToPeers(pods netip.Prefix) tables.Rule {
	return tables.Rule{
		Matches: g.toPeers(pods),
		Action:  tables.KeepSource{Family: model.FamilyOf(pods.Addr())}, Comment: "pods within the cluster, without a tunnel",
	}
}

// toPeers matches packets of this node's pods that leave for other nodes of the cluster without a tunnel.
func (g gatewayPort) toPeers(pods netip.Prefix) []tables.Match {
	f := model.FamilyOf(pods.Addr())
	return []tables.Match{
		g.notOut(),
		tables.MatchPrefix{Side: tables.Source, Prefix: pods},
		tables.MatchSet{Family: f, Side: tables.Destination, Set: PeersSet(f)},
	}
}
