// Package policy turns Kubernetes objects into the model, incrementally. An Engine takes
// each change of a node, namespace, pod, NetworkPolicy, ClusterNetworkPolicy or object of Antrea's API. Its Flush
// returns the changes for one node as typed updates.
//
//	objects -> [ parse, compile ] -> classes x selections -> groups, policies, endpoints -> Flush
//
// Pods of one namespace with equal labels are one class: a selector matches all of them or
// none. A pod belongs to one class, and most new pods come to a class that exists. For each distinct pair of
// namespaces and pod selector there is one selection, with the classes that it matches.
// Inverted indexes over labels find the selections of a class and the classes of a
// selection. So the cost of a change depends on the number of selections that the object
// enters or leaves, and not on the size of the cluster. Work counts the cost, and tests
// compare the counts. An invalid part of an object is reported as a model.Problem and
// matches nothing, but the pods stay isolated.
//
// The parts of an Engine, each of which uses those on its right only:
//
//	antrea -> policies -> groups -> nodePeers --------+
//	egresses -> nodes, nodePeers ---------------------+
//	endpoints -> pods ----------------------+-> index -> membership -> dirty -> records
//
// The index finds classes and selections. The membership counts pods as they enter and
// leave selections. It marks groups, policies, Egresses and pods as dirty, and Flush looks at these.
// Package compile compiles policies, and package label has label sets, selectors and their
// indexes.
//
// Most memory is for pods. So strings are stored once, label sets and lists of policies are
// shared, small maps are slices (package smallmap), and no Kubernetes object is kept.
//
// The package knows no backend and does no I/O. It is tested by tables, by random clusters
// and felixlike/policy/oracle (see test/policytest), by fuzzing, and with clusters of
// 100,000 pods (see test/workloads).
package policy
