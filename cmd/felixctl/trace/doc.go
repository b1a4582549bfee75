// Package trace follows a packet through what a node has programmed, and says at
// every step which table, chain or flow decided, the rule of which policy is
// behind it, and which member of a set made it match.
//
//	pod a -> [ bridge: flows ] -> gateway port -> [ host: chains ] -> gateway port -> [ bridge ] -> pod b
//	                 |                                                                    |
//	                 +------------------- tunnel: the same at the peer's -----------------+
//
// It walks chains (Ruleset) and flows (Flows) as the kernel and Open vSwitch do,
// without sending anything. It knows the forms of rules that the backends emit and
// no others: a rule that it cannot read, on the packet's way, is an error and never
// a guess. Connection tracking is an input (Conn), routing follows from the nodes.
//
// Explain is the same question answered from the Kubernetes objects (felixlike/policy/oracle),
// and Compare holds the two against each other: where they differ, something is
// wrong. Package live follows a real packet.
//
// The package does no I/O and knows no backend by name. It is tested against the
// oracle, with every probe of the truth tables and over random clusters, and
// against packets in the lab.
package trace
