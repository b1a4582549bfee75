// Package openflow speaks OpenFlow 1.5 to one bridge. It has typed flows and their
// encoding; a sequential connection that applies bundles, reads flows back, sends
// packets and reports foreign changes; and the table of desired flows, which sends
// only differences and undoes foreign changes.
//
// It owns the messages and the connection. It may not know the purpose of flows: it
// knows no pods, nodes or policies. It does not use ofnet's connection layer, which
// loses errors and truncates dumps.
//
// It is tested against a real ovs-vswitchd with the userspace datapath.
//
// # Cookies and reconciliation
//
// A cookie has the owner (16 bits: 0xf11c forwarding, 0xf11d policy, 0xf11e learned SCTP
// associations, 0xf11f a flow that only wakes the switch's revalidators), the version of
// the pipeline (8) and a hash of the content (40). After a restart of agent or switch,
// flows are reconciled by cookie, and each flow read back is compared in full. Nothing
// is wiped, nothing unchanged is rewritten, and flows of other owners stay. Forwarding
// and policy have a connection, a table of desired flows and a stage each, so neither
// waits for the other's bundle. The switch reports foreign changes to each of them
// (OpenFlow flow monitor). After lost reports everything is read.
package openflow
