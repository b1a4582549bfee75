// Package policy turns Kubernetes objects into the model, incrementally: an
// Engine is told of every change of a node, namespace, pod or NetworkPolicy,
// and its Flush returns what changed for one node as typed updates.
//
//	objects -> [ parse, compile ] -> selections -> groups, policies, endpoints -> Flush
//
// Pods and selectors meet in selections: one selection for each distinct
// (namespace scope, pod selector), found through inverted indexes in both
// directions, so that a change costs in proportion to what the changed object
// enters and leaves, never to the size of the cluster. What is wrong with an
// object is reported as a model.Problem, and the wrong part matches nothing;
// isolation is never lost.
//
// The room knows no backend and does no I/O. It is tested by tables, by
// comparing random clusters with policy/oracle (see policy/policytest), and
// by fuzzing.
package policy
