// Package dump is what a node's kernel and switch hold, in one typed form,
// whatever printed it: nft in its own language or in JSON, iptables-save,
// ipset save, ovs-ofctl dump-flows.
//
// It owns the form and the parsers of those listings, and writes the form back
// as the tools' own input. Rules, sets and flows of the forms that felixlike
// writes are typed; whatever else there is, by other programs or newer tools,
// is kept as its text (Rule.Foreign, Set.Foreign, Flow.Foreign) and never
// guessed at: whoever walks packets through a State has to stop there.
//
// Names are those of the kernel, prefixes and hashes and all; what they stand
// for is the matter of package cmd/felixctl/dump/names. The package starts no program and
// knows no policy.
//
// It is tested by listings that the tools have printed, by loading what it
// writes into fresh network namespaces, and by fuzzing.
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
// A listing that is read, written, loaded elsewhere and read again is the same (wanted:
// TestRoundTrip, TestFlowsRoundTrip). The hash of a typed rule that was read equals the
// one in its comment (TestHashOfWhatWasRead). felixctl runs the tools in the agent's
// network namespace, which it finds by the process behind the control socket. A snapshot
// keeps the tools' output and the model.
package dump
