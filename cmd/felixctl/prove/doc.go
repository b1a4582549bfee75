// Package prove proves that two states of a node do the same with all packets, or finds packets that they do not.
//
//	states (cmd/felixctl/dump)
//	        v  space: every constant that a rule, set or flow asks for cuts a field into classes
//	sets of packets: decision diagrams over the bits of the classes (diagrams)
//	        v
//	ruleset: a chain is walked once for each state (mark, conntrack) of packets, with all packets at once
//	netfilter: the hooks of a way through the host, for new connections and for all that they leave in conntrack
//	bridge: the same for the tables of flows; node: switch and host, from each place where packets come in
//	        v
//	the sets that end in different ways: the smallest packet, and regions in words
//
// If both switches have the same flows, they hand the host the same packets, and netfilter alone is compared, with all packets of all
// connections. Otherwise node compares where first packets end.
//
// The package does not use cmd/felixctl/trace, so that each can test the other. What it does not understand is a *NotProved and never equal. It does no I/O.
//
// Its verdicts are compared with trace on random packets (TestAgreesWithTrace, TestBridgeAgreesWithTrace) and over random changes of rules,
// elements and flows (TestMutations). All golden cases are proved equal under all backends (TestCasesAreEqual). TestRefusals has what it refuses.
package prove
