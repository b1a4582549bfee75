// Package conntrack has the connections of a node as values, and reads and writes those of the kernel over
// netlink, many in one request. A Hold keeps the kernel tracking connections while no other rule asks for it.
//
// It knows no policy and no switch: its users decide which connections go on. It starts no process. Its
// parser is tested by fuzzing, the rest against the real kernel in fresh network namespaces, compared with
// conntrack(8).
package conntrack
