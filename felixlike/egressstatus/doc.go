// Package egressstatus writes the status of Egresses of felixlike's own API: node, address, and the condition Assigned.
//
// The node with the address writes it. Without such a node, three nodes by rank do, each some time after the one before; a status that is
// right already is not written again. Each look also compares one status that this node has written with the one that the API server has.
//
// Nothing waits for this package. It is tested against an API server inside the test.
package egressstatus
