// Package model holds the nouns that the control plane and the dataplane
// share: nodes, endpoints, policies, rules, groups and the typed updates that
// carry them from the policy engine to the managers.
//
// It is a leaf: it imports no other package of this repository. Its values are
// plain data, built once and never mutated after they were handed over.
// Addresses and prefixes are net/netip values of either family; nothing here
// is IPv4-only by type. It is tested through the packages that use it.
package model
