// Package live sends one real packet as a pod would, and watches how it goes: what
// nf_tables and iptables say of it (trace), what Open vSwitch does with it
// (ofproto/trace), and whether it comes out where it was sent.
//
// The packet is put into the bridge as if the pod had sent it, so nothing is run in
// the pod. It carries a source port and a number of its own, by which the rule that
// has the kernel trace it knows it and nothing else: no other packet is traced. That
// rule is removed when the trace ends, also if the process is killed (guard.go).
//
// It is run as root in the node's namespaces. It is tested in the lab.
package live
