// Package status writes the status of objects of felixlike's own API: of Egresses node, address, and the condition Assigned, and of
// ExternalIPPools the number of addresses, all and used. The status of Antrea's kinds belongs to Antrea's programs.
//
// The node with the address writes that of an Egress. Without such a node, and for pools, three nodes by rank do, each some time after the one before; a status that is
// right already is not written again. Each look also compares one status that this node has written with the one that the API server has.
//
// Nothing waits for this package. It is tested against an API server inside the test.
package status
