// Package dump has one typed form for the rules, sets and flows of a node's kernel and
// switch. It parses nft's own language, iptables-save, ipset save and
// ovs-ofctl dump-flows (package ovsfwd/flowtext, which has the type of a flow).
//
// It owns the form of rules and sets and the parsers of their listings, and writes the
// form back as the tools' own input. Rules, sets and flows of the forms that felixlike
// writes are typed. The parsers keep the text of all others (Rule.Foreign,
// Set.Foreign, flowtext.Flow.Foreign): a packet walk through a State has to stop there.
//
// Names are those of the kernel, with prefixes and hashes; package
// cmd/felixctl/dump/names explains them. The package starts no program and knows no
// policy.
//
// Tests parse real output of the tools, load the written text into fresh network
// namespaces, and fuzz the parsers.
//
//	nft, iptables-save, ipset, ovs-ofctl          the agent's model (control socket, /v1/model)
//	    live: runs them                                      wanted: the agent's managers, with
//	             v                                    v      drivers that record desired state
//	    dump: one typed form <------------------------+---- or from manifests
//	             v
//	    compare: canonical form -> structure | text | verdicts (trace)
//	             ^
//	    names: meaning of hashes, ids, ports and addresses
//
// A written listing that is loaded elsewhere and parsed again is the same (wanted:
// TestRoundTrip, TestFlowsRoundTrip). The hash of a typed rule equals the
// one in its comment (TestHashOfParsedRules). felixctl runs the tools in the agent's
// network namespace, which it finds by the process behind the control socket. A snapshot
// keeps the tools' output and the model.
package dump
