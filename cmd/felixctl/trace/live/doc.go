// Package live sends one real packet as a pod would, and watches it on its way through
// nf_tables and iptables (trace) and Open vSwitch (ofproto/trace), up to the interface of
// the destination.
//
// It puts the packet into the bridge as if the pod had sent it, so nothing runs in
// the pod. The packet has a random source port and number. The rule that turns on the
// kernel's trace matches them, so the kernel traces no other packet. That
// rule is removed when the trace ends, also if the process is killed (guard.go).
//
// It runs as root in the node's namespaces. It is tested in the lab.
package live
