// Package cluster reads the state of the nodes of a cluster, with the tools of their
// backends, and the models of their agents. Package trace follows packets through them.
//
// It starts programs and asks control sockets, and decides nothing. It is tested in
// the lab by test/e2e.
package cluster
