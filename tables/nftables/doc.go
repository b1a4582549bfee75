// Package nftables programs one private nftables table of the inet family
// over netlink: generic chains (tables.Table), verdict maps
// (tables.VerdictMaps) and sets (ipsets.Sets), in one transaction; sets with
// intervals need more (renew.go).
//
//	setters ──> desired state ──┐
//	                            ├─ validate ─> plan ─> chunks ─> kernel
//	full read ─> known state ───┘                          │
//	  changes ────>  ^──────────────── commit <────────────┘
//
// The setters record the desired state and mark objects dirty. Apply compares
// the dirty objects with the known state of the kernel and sends the
// difference; in the steady state it reads nothing back, because the kernel
// echoes every rule it takes, with its handle. On the first Apply and after any
// failure the table is read in full and reconciled. The hash in its comment and a digest
// of its body identify a rule. So unchanged rules keep their handles and counters, and a
// rule that was swapped under its comment is replaced.
//
// Watch, in a goroutine of its own, records which objects of the table other programs change (package watch).
// The next Apply reads just these again (learn.go), describes the differences (drift.go, repair.go), and the
// ordinary plan repairs them. When a notification may be lost, the table is read in full. A commit that fails
// because another program was faster is begun anew.
//
// While the table has to be made from nothing, or a foreign change is too large to
// be understood at once, the chains of Options.Guard replace all others
// (guard.go): they come first, in a small transaction of their own, and go in
// the one that brings the desired base chains. So after a foreign flush the kernel is
// without policy until it accepts commits again, and some 0.3 ms more. Then new
// connections wait until all is loaded. docs/explain/flush.md says why the flags owner
// and persist are no better.
//
// Package kernel reads the table and commits transactions, and package expression writes
// the bodies of rules.
//
// The package owns its table and may not touch any other; it knows nothing of policy, starts no process and
// logs nothing. It refuses objects that it cannot encode before anything is sent. It is tested on the real
// kernel in fresh network namespaces: against the nft tool's own listing, by properties over random states,
// and with packets.
package nftables
