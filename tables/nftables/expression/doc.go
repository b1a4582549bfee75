// Package expression writes rules as the expressions that nf_tables executes, in the
// form of netlink attributes, and compares their bodies by digests.
//
// Encode writes what the nft tool writes for the same rule, so nft lists the rule as a
// person would have written it. Digester says whether the kernel's version of a rule is
// the one that Encode wrote. Attributes and numbers that begin with NFT are those of
// linux/netfilter/nf_tables.h.
package expression
