// Package nftables programs one private nftables table of the inet family
// over netlink: generic chains (tables.Table), verdict maps
// (tables.VerdictMaps) and sets (ipsets.Sets), all in one transaction.
//
//	setters ──> desired state ──┐
//	                            ├─ validate ─> plan ─> chunks ─> kernel
//	full read ─> known state ───┘                          │
//	                 ^──────────────── commit <────────────┘
//
// The setters record what is wanted and mark what they touch. Apply compares
// the touched objects with what the kernel is known to hold and sends the
// difference; in the steady state nothing is read back, because the kernel
// echoes every rule it takes, with its handle. On the first Apply and after any
// failure the table is read in full and reconciled: a rule is known by the
// hash in its comment and a digest of its body, so unchanged rules keep their
// handles and counters, and one that was swapped under its comment is replaced.
//
// The netlink messages are written here (message.go, expression.go), straight
// into the buffer that is sent.
//
// The package owns its table and may not touch any other; it knows nothing of
// policy, starts no process and logs nothing. What it cannot encode it
// refuses before anything is sent. It is tested on the real kernel in fresh
// network namespaces: against the nft tool's own listing, by properties over
// random states, and with packets.
package nftables
