// Package tables holds the generic chain and rule types that the renderers in rules/ produce and the drivers
// below (tables/nftables, tables/iptables) program. Matches and actions are typed values; each driver encodes
// them in its own way.
//
// The package knows nothing of policy and does no I/O. It is tested by the rendered text of its values, and
// by the drivers' tests on a real kernel.
package tables
