// Package iptables programs generic chains (tables.Table) with iptables-restore
// and ip6tables-restore, in one of the two variants, legacy and nft. Sets are
// the kernel's ipsets, which another driver programs; rules name them.
//
//	packet ──> PREROUTING (raw, mangle) ──> FORWARD (mangle, filter) ──> POSTROUTING (mangle, nat)
//	               │ 1st rule                   │ 1st rule                   │ 1st rule
//	               v                            v                            v
//	           flx-prerouting               flx-forward ──> flx-...      flx-postrouting
//	               │                            │                            │
//	               v                            v                            v
//	           what others have there, untouched and in their order
//
// Everything of ours in the kernel begins with "flx-" (Prefix). A base chain is
// such a chain too, entered by one rule at the top of the kernel's own chain,
// which carries our comment and is put back when somebody displaces it. Rules and
// chains of others are never removed, and policies of the kernel's chains never
// set. A chain lives in each table, of each family, from whose base chains it is
// reached; a rule that is bound to one family only in the tables of that.
//
//	setters ──> desired chains ──┐
//	                             ├─ validate ─> reach ─> plan ─> one restore a family
//	iptables-save ──> known ─────┘                                      │
//	                    ^────────────────── commit <────────────────────┘
//
// A restore edits chains by the smallest script, by the numbers of rules, so
// that what stays keeps its counters; nobody else has business in our chains. It
// changes each table as a whole or not at all. In the steady state nothing is
// read. iptables-save runs on the first Apply, after a failure, after Invalidate
// and after a foreign change that Watch has noticed. A rule is then known by the hash in its comment, and by its text:
// render.go writes rules exactly as the tools print them. Where a tool prints
// one otherwise, that costs one write, after which its text is learned.
//
// What the tool or the kernel refuses is set aside (tables.Refusal). The tool
// names the line, but for what only the kernel finds in the legacy variant: there
// the chains of the failed write are searched by halves. Base chains cannot stand
// closed, since they see all packets of the host: there it is an error.
//
// The package touches nothing of the other variant, knows nothing of policy and
// logs nothing. It is tested on the real kernel with both variants in fresh
// network namespaces: by what iptables-save prints, by properties over random
// rules and chains, beside other programs that write all the time, and with
// packets.
//
// # The variant
//
// Backend "iptables" takes the variant of the setting iptables.variant. Without the
// setting it takes the variant in which the kubelet or other programs have their rules,
// and logs why. If both variants have rules, it does not guess: the error says what to
// set.
//
// Accepted packets skip the rules of other programs behind ours. The programs started
// are iptables-restore and ip6tables-restore; their -save runs at the start, after a
// failure and at the resync. Kernel tables change one after the other, each as a whole.
package iptables
