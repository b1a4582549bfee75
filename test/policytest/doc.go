// Package policytest draws random clusters and packets for property tests
// (pgregory.net/rapid), and judges packets by the model that the policy
// engine emits.
//
// The clusters use every feature of NetworkPolicy and ClusterNetworkPolicy and some mistakes; they are
// small, so that rapid's shrunk examples can be read. The package owns no
// semantics of policy: those are in felixlike/policy/oracle, and Model knows only
// the comments of package model. It is used and thereby tested by
// the property tests of package policy.
package policytest
