// Package policyflows turns policies, groups and pods into the flows of the
// tables that judge packets:
//
//	45 admin tier, egress -> 50 NetworkPolicies, egress -> 60 isolation, baseline -> 61 metrics
//	85 admin tier, ingress -> 90 NetworkPolicies, ingress -> 100 isolation, baseline -> 101 metrics
//
// In table 31 a meter a pod bounds the rate of its new connections.
//
// The file of each table begins with its flows in ovs-ofctl notation. Package pipeline
// renders the flows that depend on the node alone (defaults, established connections,
// traffic of the node).
//
// A rule is a conjunction of up to three dimensions: the pods it is applied to
// (nw_src for egress, the output port in reg1 for ingress), its peers, and its
// ports. A dimension that matches everything is left out. A conjunction needs two
// dimensions, so a rule for all peers and ports gets all addresses of both families as
// its peers. The number of flows of a rule is the sum of the members of its dimensions,
// not their product. A clause is one flow: one member of a dimension, in one table, at
// one priority. All rules with this clause share it:
//
//	ip,nw_src=10.10.1.2 actions=conjunction(2,1/3),conjunction(7,1/2)
//
// The Store has these parts, each with its own state (ids is beside them):
//
//	setters ─> objects ─> networkGroups ─> placer ─> renderer, rateLimit ─> Flows
//	                            quarantine ──^
//
// The objects are the rules, groups and pods themselves. The networkGroups
// count the flows that each policy costs and close those above the limit. The placer
// gives rules their priorities, ids gives them their conjunction ids. The quarantine has
// the policies that the switch refuses. The renderer renders a flow when it is
// asked for; no flow is kept.
//
// The package does no I/O and knows no driver but for the Programmer, which
// applies a flow table and quarantines the policies that the switch refuses. It is tested by
// comparison with the reference flows, by an evaluator of flows against the
// model (random policies, any order of updates), and in a real ovs-vswitchd.
//
// # Size
//
// Flows are at most the sum of the dimensions (TestFlowsAreTheSumOfTheDimensions). A pod
// that joins a group changes the flows of its address alone. 1,000 pods, 1,000 policies
// of ten rules and 500 groups of 20 members are 58,000 flows. Rules, groups, pods and
// the digests of all flows take 22 MB.
//
// All rules with a port share its flows, so a change of one rule sends the others again for each of its ports. Where a set
// of ports has more than 2,000 parts in rules, it has a bit of reg7: flows set the bits of a packet's port, and one flow has the
// rules (portsets.go).
//
// A flow carries about 4,000 conjunctions at most. Beyond 3,900 rules a direction,
// NetworkPolicies are spread over lanes of priorities, by a hash of the rule. All
// rules of the admin tier on this node are in one order, and so are those of the baseline
// tier. Each rule has a priority of its own: the one that the reference pipeline would
// give it, if that is free. Beyond 250 rules a direction (baseline: 180), rules share
// priorities where their order makes no difference (sharing.go).
//
// # Rules that hold
//
// docs/design/openflow.md has the invariants of ids, meters and refusals. Beside them:
//
//   - If the switch refuses meters, rejected packets get no answer (Rates).
//   - An unknown pod is closed. So is a pod that has gone, until forwarding has no flows
//     for it.
//   - Tables 61 and 101 count per rule (Store.Hits). With rules of the admin tier for
//     ingress, 101 sees only the first packets: the established flow of 85 skips it, as
//     in the reference.
package policyflows
