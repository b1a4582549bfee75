// Package lab builds clusters out of network namespaces: nodes with their own
// Open vSwitch and a real agent each, pods attached by the CNI code, hosts
// outside the cluster, and probes between all of them with real packets.
//
// A namespace called the fabric joins the nodes: a kernel bridge that is also
// the default gateway of the nodes and has the addresses of all hosts outside.
//
//	pod eth0 -- veth -- [ br-int of node1 ] -- tunnel -- [ br-int of node2 ] -- veth -- eth0 pod
//	                          |                                |
//	                     node1 eth0 ------ fabric br0 ------ eth0 node2
//	                                      (ip:ADDRESS)
//
// Everything that a lab makes is written to its record before it is made, so
// that Cleanup removes it after any crash; it ends only recorded processes and
// deletes only recorded namespaces. The agent must not import this package. It
// is tested by running it.
package lab
