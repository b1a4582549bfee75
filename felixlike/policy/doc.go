// Package policy turns Kubernetes objects into the model, incrementally: an
// Engine is told of every change of a node, namespace, pod, NetworkPolicy or
// ClusterNetworkPolicy, and its Flush returns what changed for one node as typed updates.
//
//	objects -> [ parse, compile ] -> classes x selections -> groups, policies, endpoints -> Flush
//
// Selectors cannot tell pods apart that are of one namespace and have the same
// labels: these are one class, and most pods come to a class that is there
// already. Classes and selectors meet in selections: one selection for each
// distinct (namespaces, pod selector). They are found through inverted indexes
// over labels in both directions, so that a change costs in proportion to what
// the changed object enters and leaves, never to the size of the cluster: Work
// counts it, and tests compare the counts. What is wrong with an object is
// reported as a model.Problem, and the wrong part matches nothing; isolation is
// never lost.
//
// Memory is for pods: strings are kept once, label sets and lists of policies
// are shared, small sets are slices, and no Kubernetes object is kept.
//
// The room knows no backend and does no I/O. It is tested by tables, by
// comparing random clusters with felixlike/policy/oracle (see test/policytest), by
// fuzzing, and with clusters of 100,000 pods (see test/workloads).
package policy
