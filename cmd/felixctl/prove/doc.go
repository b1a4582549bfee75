// Package prove proves that two states of a node give all packets the same verdict, or finds packets with different ones.
//
//	states (cmd/felixctl/dump)
//	        v  space: the constants in rules, sets and flows cut each field into classes
//	sets of packets: decision diagrams over the bits of the classes (diagrams)
//	        v
//	ruleset: a chain is walked once for each state (mark, conntrack) of packets, with all packets at once
//	netfilter: the hooks of a way through the host, for new connections and for all that they leave in conntrack
//	bridge: the same for the tables of flows; node: switch and host, from each place where packets come in
//	        v
//	the sets that end in different ways: one packet that is easy to send, and regions in words
//
// If both switches have the same flows, they hand the host the same packets, and netfilter alone is compared, with all packets of all
// connections. Otherwise node compares where first packets end.
//
// If rules and sets are the same as well (same.go), packets are not followed at all: most proofs are of a node that is as it should be.
//
// The package does not use cmd/felixctl/trace, so that each can test the other. What it does not understand in felixlike's rules is a *NotProved, never equal.
// Other programs' rules are compared by their text. It does no I/O.
//
// Its verdicts are compared with trace on random packets (TestAgreesWithTrace, TestBridgeAgreesWithTrace) and over random changes of rules,
// elements and flows (TestMutations). All golden cases are proved equal under all backends (TestCasesAreEqual). TestRefusals has what it refuses, TestSameRules what need not be followed.
package prove
