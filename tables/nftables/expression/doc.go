// Package expression writes rules as the expressions that nf_tables executes, in the
// form of netlink attributes, and compares their bodies by digests.
//
// Encode writes the same expressions as the nft tool, so nft lists the rule in its usual form. Digester
// compares the kernel's version of a rule with the one that Encode wrote. Attributes and numbers that begin
// with NFT are those of linux/netfilter/nf_tables.h.
package expression
