// Package trace follows a packet through the programmed chains and flows of a node. At
// every step it names the table, chain or flow that decided, the policy and rule behind
// it, and the member of a set that matched.
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
// Judge answers the same question from the Kubernetes objects
// (felixlike/policy/oracle), and Compare compares the two answers: a difference is an
// error. Package live follows a real packet.
//
// The package does no I/O and knows no backend by name. It is tested against the
// oracle, with every probe of the truth tables and over random clusters, and
// against packets in the lab.
package trace
