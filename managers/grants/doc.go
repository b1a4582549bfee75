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
// A number is the hash of what it stands for, so that it is the same after a restart, and never means anything else. While
// another number in use is the same, it is that of another hash. So a packet that is looked up during a change finds each
// number as it was before or as it is after, and no number of another list or identity.
//
// A list that cannot be expressed stays in chains of rules, with all policies of its pods in this direction: one with a
// tier before or after NetworkPolicies, or with a rule that logs, has a named port, a whole protocol, or too many
// ports. If the grants become too many, all lists do, until the agent restarts (Overflow), and the maps and sets are
// removed.
//
// With Options.From, lists with fewer rules stay in chains.
//
// The package does no I/O. It is tested against an evaluation of the model by random changes, and on the real kernel in
// test/property.
package grants
