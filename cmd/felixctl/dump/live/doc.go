// Package live reads the state of a node with the tools that an administrator would
// use: nft, iptables-save, ipset and ovs-ofctl, in the node's network namespace. Only
// felixctl does so, never the agent. It keeps the tools' output, too (Part).
//
// It changes nothing. It is tested in labs.
package live
