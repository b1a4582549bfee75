// Package conntrack has the connections of a node as values, and reads and
// writes those of the kernel over netlink, many in one question. A Hold keeps the kernel
// tracking connections while no other rule asks for it.
//
// It knows no policy and no switch: who may go on is decided by its users. It
// starts no process. Its parser is tested by fuzzing, the rest against the
// real kernel in fresh network namespaces, with conntrack(8) as the judge.
package conntrack
