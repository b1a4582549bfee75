// Package kernel programs the sets of package ipsets in the kernel's ipset,
// over netlink and without a process started, for rules that iptables holds.
//
// A set has to exist before the first rule that names it, and can only go after the
// last. So there are two phases, before and after the update of the rules:
// ApplyUpdates creates sets and changes their members, by deltas; ApplyDeletions
// destroys the sets that are not desired. Unlike a transaction of nftables, these
// changes take effect one by one. Within a set the driver adds members before it
// deletes others, so that the members of both the old and the new content match all
// the time.
//
// All programs in the network namespace share the names of sets, so ours have a prefix
// (ipsets.KernelName). The driver destroys sets with the prefix that are not desired,
// and never touches sets without it. It reads the kernel in full before the first
// apply, after a failure, after Invalidate and after a foreign change that Watch has
// noticed, and at no other time.
//
// The driver quarantines a set that it cannot program, records the reason and tries
// again; it programs the others. The caller has to close the chains that name the set,
// see Refused. If the kernel holds a set of another type or family under one of our
// names, and a rule refers to it, our set is quarantined too: the kernel swaps only
// sets of one type and family. Closing the chains frees the old set, and the next try
// replaces it.
//
// The package is tested on the real kernel, in network namespaces, with the
// ipset tool as the reader.
//
// One message changes many members. A new capacity or other options need a new set: it
// is built beside the old one and swapped. The driver writes its own netlink messages;
// docs/design/dependencies.md compares this with lrh3321/ipset-go and vishvananda/netlink.
package kernel
