// Package kernel programs the sets of package ipsets in the kernel's ipset,
// over netlink and without a process started, for rules that iptables holds.
//
// A set has to exist before the first rule that names it and can only go after
// the last, so there are two phases around those of the rules: ApplyUpdates
// creates sets and changes their members, by deltas; ApplyDeletions destroys
// what nobody wants. Unlike a transaction of nftables, these changes take
// effect one by one: within a set members are added before others are deleted,
// so that what an old and a new content have in common is in force throughout.
//
// The names of sets are the network namespace's, so ours have a prefix
// (ipsets.KernelName). Sets with the prefix that are not desired are destroyed;
// others are never touched. The kernel is read in full before the first apply,
// after a failure, after Invalidate and after a foreign change that Watch has
// noticed, and never else.
//
// A set that cannot be programmed is quarantined, with the reason, and tried
// again; the others are programmed. The caller has to close the chains that
// name it, see Refused. A set of another type or family under a name of ours
// is one of these while a rule holds it: the kernel swaps only sets of one type
// and family. Closing the chains frees it, and the next try replaces it.
//
// The package is tested on the real kernel, in network namespaces, with the
// ipset tool as the reader.
//
// One message changes many members. A new capacity or other options need a new set: it
// is built beside the old one and swapped. The driver writes its own netlink messages;
// docs/DEPENDENCIES.md compares this with lrh3321/ipset-go and vishvananda/netlink.
package kernel
