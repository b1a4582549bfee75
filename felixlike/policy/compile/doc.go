// Package compile compiles a NetworkPolicy, a ClusterNetworkPolicy or a policy of Antrea's API to the model: its
// rules, the pods that it applies to, and the definitions of the groups in its rules.
//
//	object -> [ selectors, peers, ports, limits ] -> Policy, problems
//
// It is pure: a Policy depends on one object alone, one of Antrea's API also on the tiers and
// groups that it names. A part that is not valid is reported
// as a model.Problem with its field. In a NetworkPolicy that part matches nothing, and the
// pods stay isolated. A rule of a ClusterNetworkPolicy or of Antrea's API fails closed as a whole:
// an Accept matches nothing, a Deny or a Pass denies everything.
//
// It is tested by tables and by random blocks; the tests of felixlike/policy compile
// policies of random clusters and compare with felixlike/policy/oracle.
package compile
