// Package vswitchd speaks to the control socket of ovs-vswitchd, as ovs-appctl
// does: JSON-RPC 1.0 over a unix socket in the run directory. It starts no
// process, and no question takes longer than ten seconds: a switch that does
// not answer is an error.
//
// It owns the functions that only this socket has: the connections that the userspace
// datapath tracks, its check of TCP sequence numbers, and the wait for the
// revalidators. Flows and ports belong to packages openflow and ovsdb. It is
// tested against the real daemon, its parser by fuzzing too.
package vswitchd
