// Package kernel speaks to nf_tables over netlink: it reads one table of the inet family,
// and commits operations on it as one transaction.
//
//	Op ──> Conn.Commit ──> kernel ──> echoes of rules, or a RefusedError
//	       Conn.Read  <── kernel      (State: chains, sets, maps, others)
//
// It knows the kernel's objects, but not the desired state. A Conn is used from one goroutine.
package kernel
