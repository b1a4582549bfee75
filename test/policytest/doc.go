// Package policytest draws random clusters and packets for property tests
// (pgregory.net/rapid), and judges packets by the model that the policy
// engine emits.
//
// The clusters use every feature of NetworkPolicy and ClusterNetworkPolicy and some mistakes; they are
// small, so that what rapid shrinks them to can be read. The package owns no
// semantics of policy: those are in felixlike/policy/oracle, and Model knows only
// what the comments of package model say. It is used and thereby tested by
// the property tests of package policy.
package policytest
