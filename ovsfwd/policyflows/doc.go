// Package policyflows turns policies, groups and pods into the flows of the
// tables that judge packets:
//
//	45 admin tier, egress -> 50 NetworkPolicies, egress -> 60 isolation, baseline -> 61 metrics
//	85 admin tier, ingress -> 90 NetworkPolicies, ingress -> 100 isolation, baseline -> 101 metrics
//
// In table 31 a meter a pod bounds the rate of its new connections.
//
// One file a table begins with its flows in ovs-ofctl notation. Those that
// depend on the node alone (defaults, established connections, traffic of the
// node) are not here.
//
// A rule is a conjunction of up to three dimensions: the pods it is applied to
// (nw_src for egress, the output port in reg1 for ingress), its peers, and its
// ports. A dimension that matches everything is left out; where only that of
// the pods would be left, the peers are all addresses of both families. So the
// flows of a rule are as many as the members of its dimensions, not their
// product, and a clause (what a dimension has for a member, in one table at one
// priority) is one flow, shared by all rules that have it:
//
//	ip,nw_src=10.10.1.2 actions=conjunction(2,1/3),conjunction(7,1/2)
//
// What the Store keeps is the rules, groups and pods themselves. A flow is
// rendered from them when it is asked for; no flow is kept.
//
// The package does no I/O and knows no driver but for the Programmer, which
// applies a flow table and sets aside what the switch refuses. It is tested by
// comparison with the reference flows, by an evaluator of flows against the
// model (random policies, any order of updates), and in a real ovs-vswitchd.
package policyflows
