// Package oracle is the reference evaluator of NetworkPolicy and ClusterNetworkPolicy. It
// decides whether a packet may pass between two addresses of a cluster, directly from the
// Kubernetes objects. It is as plain as possible, and its speed does not matter. Tests
// compare the policy engine, the tracers and the live backends with it.
//
// It must not share code with the policy engine, so that both do not have the same
// misreading of the API. It is tested against truth tables of other authors
// (test/truthtable), in both address families.
package oracle
