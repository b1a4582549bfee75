// Package cluster reads what the nodes of a cluster hold, with the tools of their
// backends, and what their agents know, for package trace to follow packets through.
//
// It starts programs and asks control sockets, and decides nothing. It is tested in
// the lab by test/e2e.
package cluster
