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
//	           rules of other programs, untouched and in their order
//
// Packets to the host itself leave this way behind PREROUTING, for INPUT (mangle), which flx-input is entered from.
//
// Everything of ours in the kernel begins with "flx-" (Prefix). A base chain is
// such a chain too, entered by one rule at the top of the kernel's own chain,
// which carries our comment; Apply inserts it again when another program displaces it. Rules and
// chains of others are never removed, and policies of the kernel's chains never
// set. A chain is programmed in each kernel table of each family
// whose base chains lead to it. A rule of one family is only in that family's tables.
//
//	setters ──> objects ───────┐
//	                           ├─ validator ─> planner ─> writer: one restore a family
//	iptables-save ─> observed ─┘                             │
//	                    ^──────────── written <──────────────┘
//
// A restore edits chains by the smallest script, by the numbers of rules, so that the
// other rules keep their counters: no other program has rules in our chains. It changes
// each table as a whole or not at all. In the steady state nothing is read. The reader
// runs iptables-save on the first Apply, after a failure, after Invalidate and after a
// foreign change that Watch has noticed. It knows a rule by the hash in its comment and
// by its text: render.go writes rules exactly as the tools print them. Where a tool
// prints a rule in another way, that costs one write, after which the reader keeps its
// text. Drift has the foreign changes until they are repaired.
//
// Where another program has written a rule with nft that iptables cannot show, the tables
// with such rules are read by netlink: chains, and the hashes in comments. Each has a restore
// for itself, and rules in the kernel's chains are deleted there by their handles.
//
// The quarantine has the chains that the tool or the kernel refuses (tables.Refusal), and
// the chains that are closed because of them. The tool names the line, but not if only
// the kernel of the legacy variant finds the fault: then the fault finder searches the
// chains of the failed write by halves. Base chains cannot be closed, since they see all
// packets of the host: there a refusal is an error.
//
// The package touches nothing of the other variant, knows nothing of policy and
// logs nothing. It is tested on the real kernel with both variants in fresh
// network namespaces: by the output of iptables-save, by properties over random
// rules and chains, beside other programs that write all the time, and with
// packets.
//
// # The variant
//
// Backend "iptables" takes the variant of the setting iptables.variant. Without the
// setting it takes the variant in which the kubelet or other programs have their rules,
// and logs why. If both variants have rules, it does not guess: the error names the
// setting.
//
// Accepted packets skip the rules of other programs behind ours. The programs started
// are iptables-restore, ip6tables-restore and their -save (see above when). Kernel tables
// change one after the other, each as a whole.
package iptables
