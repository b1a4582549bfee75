// Package live reads what a node holds, by the tools that a person would use: nft,
// iptables-save, ipset and ovs-ofctl, in the node's network namespace. The agent
// never does so; felixctl does. What it has read it keeps in the tools' own words
// as well (Part).
//
// It changes nothing. It is tested in labs.
package live
