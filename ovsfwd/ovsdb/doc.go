// Package ovsdb makes and watches the bridge and its ports through OVSDB: the
// integration bridge with gateway and tunnel port, the second bridge that a
// userspace datapath needs for its uplink, and the ports of pods.
//
// It owns the rows that it marks with external_ids and leaves all others
// alone. It may not know flows, nor anything of a pod but its name, MAC and
// addresses. The CNI code uses AttachPort and DetachPort without the agent; the
// agent learns of them by WatchAttachments, also after its own restart, since
// the rows carry all there is to know.
//
// It is tested against a real ovsdb-server and ovs-vswitchd.
package ovsdb
