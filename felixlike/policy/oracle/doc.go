// Package oracle is the reference evaluator of NetworkPolicy and
// ClusterNetworkPolicy: it answers
// whether a packet may pass between two addresses of a cluster, straight from
// the Kubernetes objects, as plainly as possible and with no thought for
// speed. The policy engine, the tracers and the live backends are judged by
// it.
//
// It may share no code with the policy engine: a misreading of the API must
// not be made twice by copying. It is tested against truth tables that were
// made by others (test/truthtable), in both address families.
package oracle
