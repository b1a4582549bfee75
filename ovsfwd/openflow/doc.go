// Package openflow speaks OpenFlow 1.5 to one bridge: typed flows and their
// encoding, a sequential connection that applies bundles, reads flows back,
// sends packets and tells of changes that others make, and the table of wanted
// flows that sends only differences and undoes foreign changes.
//
// It owns the messages and the connection. It may not know what the flows are
// for: it has no idea of pods, nodes or policies. ofnet's connection layer is
// not used, since it loses errors and truncates dumps.
//
// It is tested against a real ovs-vswitchd with the userspace datapath.
package openflow
