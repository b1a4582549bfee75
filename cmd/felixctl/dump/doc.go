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
package dump
