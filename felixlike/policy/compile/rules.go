package compile

import (
	"slices"

	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/model"
)

// egressRule appends an egress rule. The packet goes to the peer, so named ports are
// looked up in the peer. Therefore a rule with named ports is split into: numbered ports
// to all peers; named ports of all pods to networks; and, for each selector, the named
// ports of its own pods. A member of that last group is a peer, so the rule matches any.
func (c *compiler) egressRule(out []model.Rule, r model.Rule, peers peerSet, ports portSet) []model.Rule {
	inCluster := c.named(ports, Selection{Namespaces: label.Everything(), Pods: label.Everything()})
	if len(peers.selections) == 0 {
		return c.rule(out, r, peers, ports, inCluster)
	}
	out = c.rule(out, r, peers, ports, nil)
	out = c.rule(out, r, peerSet{networks: peers.networks}, portSet{}, inCluster)
	for _, g := range peers.selections {
		out = c.rule(out, r, peerSet{any: true}, portSet{}, c.named(ports, g.From))
	}
	return out
}

// named defines the groups of a rule's named ports over selections.
func (c *compiler) named(ports portSet, selections ...Selection) []model.GroupID {
	var ids []model.GroupID
	for _, p := range ports.names {
		for _, s := range selections {
			ids = append(ids, c.define(c.ids.portsOf(s, p)))
		}
	}
	return ids
}

// rule appends a rule with the name and action of r, unless it matches nothing.
func (c *compiler) rule(out []model.Rule, r model.Rule, peers peerSet, ports portSet, named []model.GroupID) []model.Rule {
	if peers.empty() || !ports.any && len(ports.ranges) == 0 && len(named) == 0 {
		return out
	}
	r.AnyPeer, r.AnyPort, r.Ports, r.NamedPorts = peers.any, ports.any, ports.ranges, named
	r.Peers = slices.Grow(r.Peers, len(peers.selections)+len(peers.networks))
	for _, groups := range [...][]Group{peers.selections, peers.networks} {
		for _, g := range groups {
			r.Peers = append(r.Peers, c.define(g))
		}
	}
	return append(out, r)
}
