// Package grants compiles lists of NetworkPolicies to maps and sets of nftables: the layout maps. One lookup there
// takes the place of the rules of all policies of a pod, and a change of a rule or a member changes elements, and
// no rule.
//
//	address of a pod  -> number of its list of policies    rules.ListMap, one a direction and family
//	address of a peer -> identity, a number                rules.IdentityMap, rules.NetworkMap
//	list, identity, protocol, port, or
//	list, identity for every protocol and port             rules.GrantsSet, rules.AnyPortGrantsSet
//
// The identity of an address stands for the set of groups that have it. The groups of pods and the networks have
// identities of their own: rules.Granted asks for both, and for grants to every peer (identity 0). Networks and their
// exceptions cut the address space into ranges. Each range has one identity.
//
// docs/design/layout-of-maps.md says what a number stands for, and which lists stay in chains of rules.
//
// The package does no I/O. It is tested against an evaluation of the model by random changes, and on the real kernel in
// test/property.
package grants
