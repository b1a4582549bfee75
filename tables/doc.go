// Package tables holds the generic chain and rule types that the renderers in
// rules/ produce and the drivers below (tables/nftables, tables/iptables)
// program: matches are typed values, actions are typed values, and each driver
// encodes them in its own way.
//
// The package knows nothing of policy and does no I/O. It is tested by the
// text its values render to, and by the drivers' tests on a real kernel.
package tables
