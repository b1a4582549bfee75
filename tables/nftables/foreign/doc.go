// Package foreign finds chains of other programs that drop packets of a node to the tunnel port of this node, or packets
// that this node forwards.
//
//	chains at INPUT ─> rules of their tables ─> walk ─> chains that drop the packet for certain
//
// It reads the tables of nf_tables of the family inet and of the packet's version, and changes nothing. An accept in one table cannot
// undo a drop in another, so the agent cannot let such a packet pass. It can only name the chain, and the rule to
// add.
//
// The walk knows what the packet has in the fields that rules of firewalls look at: protocol, port, addresses,
// interface, mark, and that its connection is new. A condition on anything else may be true or false. Only a chain
// that drops the packet in either case is reported. The tables of iptables are left out: iptables.HeadRules is for
// them.
//
// The package knows no policy and no backend. It is tested with rulesets of nft in network namespaces.
package foreign
