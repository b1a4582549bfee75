// Package rules renders the model to generic chains: the static chains that
// every packet of a pod passes, one chain a policy and direction, one chain
// for each distinct list of policies that applies to endpoints, and their
// names. Both netfilter backends use it; only the dispatch from addresses to
// chains differs between them: verdict maps, or trees of chains.
//
// It is pure: no I/O, and equal input gives equal output byte by byte. It is
// tested by the text of the rendered chains, and by packets in the drivers' and
// end-to-end tests.
//
// The path of a packet through the chains, where gw is the gateway port:
//
//	prerouting (base chain, before conntrack)
//	  in by a pod's own interface, around the switch . drop
//	forward (base chain, hook forward)
//	  in the modes noEncap and hybrid, and with encryption: neither in by gw nor marked
//	    as believed (see Senders), source in a pod prefix: forged  drop
//	  of a connection marked as allowed, no SYN ..... accept
//	  neither in nor out by gw ...................... return
//	  in by gw   jump judge-egress
//	  |            invalid .......................... drop
//	  |            jump common-out: policies of many pods
//	  |            source address -> verdict map: the chain of the policies
//	  |              that isolate the source's egress; a policy that allows
//	  |              marks the packet as judged, and it returns; one without
//	  |              the mark is dropped at the end of the chain. An entry of
//	  |              a map or tree goes to allowed-out, which marks
//	  |            own pod prefix, but no endpoint .... drop
//	  |            from a peer node ................... mark as judged
//	  else       jump judge-outside
//	  |            invalid .......................... drop
//	  |            source in a pod prefix: forged ... drop (encap only)
//	  |            mark as judged
//	  judged     goto to-pods
//	  drop
//	to-pods
//	  jump common-in: policies of many pods
//	  destination address -> verdict map: the chain of the policies that
//	    isolate the destination's ingress; accept, or drop at its end
//	  own pod prefix, but no endpoint ............... drop
//	  IPv6 link-local ............................... drop
//	  accept
//
// Packets that policy denies go to denied-out or denied-in, which drop them. They come
// from the end of a chain of policies, from a rule that denies, or from the verdict of a
// closed pod's address. While a client subscribes to denied packets, these two chains
// report them first. The chain no-service does the same with packets to addresses that no
// Service has.
//
// Packets that policy rejects go to rejected-out or rejected-in, which answer and drop them.
// These are behind the same checks of the source as the chains of denied packets. iptables
// rejects only in its table filter, so there these chains set MarkRejected and accept. In
// filter, passed leads such packets to the chain answer. If another program accepts them
// before, the base chain allowed drops them.
//
// The base chain allowed (hook postrouting) marks a connection as allowed if its packet
// was judged, passed forward, and comes from the side that opened the connection. The
// state established is not enough: connections also begin while there is no policy. If
// another program flushes forward, packets pass without MarkJudged, and their connections
// are not marked as allowed.
//
// Packets of pods keep their source within the cluster, also if other programs would
// masquerade it (postrouting); on the way out it becomes the node's. If other programs
// share our table, the chain passed accepts packets that policy allowed before the rules
// of these programs (see Passed). The openflow backend has chains of its own (see Host).
//
// While a table is built from nothing, guard-forward and guard-prerouting replace
// forward and prerouting (see Guard).
//
// A packet between two pods of one node passes once and is judged in both
// directions by that one pass. Egress returns before ingress begins, because kernels
// before the December 2025 patch "nf_tables: avoid chain re-validation if possible"
// (6.1, 6.12) follow every path from the base chains at every change of a rule. With
// ingress below each rule that allows egress, the number of paths was the product of
// both, and one change took seconds (TestPathsAreLinear in cmd/felixctl/dump/wanted
// counts the paths).
//
// Because of these kernels a common chain also replaces jumps from the chains of many
// pods; it matches the pods by a set of addresses (see Common). It leads to large policies
// of many pods, to lists of policies of the admin tier, and to the chains of many pods
// with equal policies. The managers choose these by the rule visits they save.
//
// iptables has no action that marks a packet and returns. There a rule that allows egress
// only marks, and every rule of the chain matches only packets without the mark. So one
// rule decides, and one counter counts. A packet that is allowed early still passes the
// rest of the chain, once per connection.
//
// In the layout maps of nftables, the verdict map leads most pods to the chains granted-in and granted-out instead (Granted).
// Their rules look up the list of the pod, the identity of the peer, and a grant for both (managers/grants). Chains of
// policies and lists are only those of the other pods.
//
// For drivers without verdict maps, the root of a prefix tree stands in a
// map's place (AddressTree): its rules jump to the chains of address prefixes,
// those go to longer ones, and a leaf's rules compare whole addresses. The
// longest path, through a tree to a rule that denies, is 9 chains.
//
// # Packets that take other paths
//
//   - Around the switch: a userspace datapath reads a pod's frames from a packet socket,
//     and the host's stack gets them as well. One rule before conntrack drops them: the
//     interfaces of pods have names that begin with "fx-". The interface answers no ARP,
//     so no pod learns its MAC address (TestHostSideForwardsNothing).
//   - Node to its own pods: OUTPUT, then the gateway port. Policy does not judge it.
//   - Pod to its own node: INPUT, under every backend, since only there the destination
//     is known after DNAT. Only the ordered tiers judge it, see Input.
//   - Pod to a peer node's own address, and back: the way of packets to its pods, in both
//     directions: through the tunnel, routed, or encrypted (docs/explain/network.md). With the tunnel
//     or encryption, "ip rule iif flx-gw0" selects a table with the peers' addresses, and routes to
//     peers' pods carry the node's own address as source. So nobody masquerades, and
//     policy sees the real address.
//   - Pod to the outside: judged in FORWARD, then masqueraded to the node's address.
//   - Pod to a peer's pod through a NodePort of its own node: kube-proxy would
//     masquerade. Sources keeps the pod's address, so the peer can judge it.
//   - Outside to a pod (routed, or DNATed by kube-proxy in PREROUTING): judged in
//     FORWARD after DNAT. A source inside the pod prefixes is forged and dropped, unless
//     the table of Senders believes it.
//
// Under openflow the switch judges by addresses and passes packets of its own node, all of
// whose addresses it knows (hostnet.WatchAddresses). The table of the host (see Host)
// keeps the addresses true:
//
//	pod -> Service      to the host unjudged; DNAT; back to the switch with its source, and judged
//	pod -> itself       the host writes pipeline.Hairpin as the source, the switch restores it
//	outside -> NodePort the client keeps its source: a chain one before srcnat (99) binds it,
//	                    so a masquerade at 100 comes too late
//	forged, or an address of the node after srcnat                   drop
//	a Service that leads outside, from a pod with judged egress      drop: it does not come back
//
// While that table is missing, the guard holds up new connections only.
//
// In the mode networkPolicyOnly there is no gateway port. A table of its own marks
// packets from pods with MarkBelieved, and the sets of OwnPodsSet match packets to pods (policyonly.go).
//
// # The mark of allowed connections
//
// Established connections pass without being judged, but only if policy allowed them
// (marks.go). MarkAllowed in the mark of the connection says so. A packet of the side
// that opened the connection sets it behind FORWARD, if the packet has MarkJudged. A
// connection that began while the rules were flushed has no such mark, so policy judges
// its next packet. Both netfilter backends use the same bits, and conntrack outlives
// rules and agents. So connections survive restarts and changes of the backend. Under
// openflow a bit in the connection's label, in a zone of its own, has the same meaning.
// A TCP segment that asks for a connection is always judged: if the server's reset has
// closed an entry, conntrack reopens it, mark and all, for a client that comes back to
// its port. marks.go lists the bits of packets.
//
// So packets of allowed connections pass few rules (TestEstablishedPackets). Chains of the
// type nat see only the first packet of a connection.
//
//	hook (table of iptables)      nftables     iptables
//	PREROUTING (raw)              1            1
//	FORWARD (mangle)              1 (TCP) or 2 1 (TCP) or 2
//	FORWARD (filter)              -            2 (TCP) or 3
//	POSTROUTING (mangle)          1            1 (TCP) or 2
//
// # Names of chains
//
// A name depends only on the identity of its object (names.go, claims.go). It has a
// shortened namespace and name for people, and a hash of API group, kind, namespace,
// name and direction. The hash has 162 bits under nftables and 90 under iptables, whose
// names have 28 bytes. If two objects still collide, the programmed one keeps the name.
// If both are new, the lesser one gets it. The other object gets no chain, its pods are
// closed in that direction, and status names both objects (managers: TestCollidingNames,
// with hashes of zero and six bits; felixlike: TestCollisionsAreReported). The kernel
// shortens no generated name, and objects of different kinds never have the same name
// (cmd/felixctl/dump/names: TestKindsOfNames).
//
// # Decisions
//
// docs/design/netfilter.md says why dispatch is by address, and why pods share chains.
//
// Common chains (common-in, common-out) match the pods by a set of addresses with the
// name of the chain (pin-....4). Each part saves the kernels named above at least 1,000
// rule visits. A direction has at most 32 parts, because the
// kernel looks up the first packet of a connection in every set. The choice depends only
// on the current objects, not on their order (managers: TestCommonChainsDecideAlike).
// nftables changes members and rules in one transaction; iptables does not. Under
// iptables other members need a new set with another version in its name, so that one
// restore changes the rules from the old members to the new ones
// (TestCommonSetsChangeWithRules). After a collision of names, the pods of the second
// object are not in common chains (TestCollisionConcernsItsPodsOnly).
//
// Prefix trees (prefixtree.go): a leaf lists up to 8 addresses, the chains above it the
// largest prefixes with up to 8, 32 and 160 addresses. So the shape depends on the set
// of addresses alone, a restart writes nothing, and a new pod touches one leaf. Rules
// evaluated to find an address (at most / mean), as TestTreeCosts prints them:
//
//	addresses   in a row    random
//	       10   7 / 4.5     8 / 4.7
//	      100   15 / 8.9    17 / 8.9
//	    1,000   23 / 13.9   25 / 14
//	   10,000   94 / 49     102 / 52
//
// nf_tables, and so iptables-nft, takes no path of more than 16 chains, gotos counted.
// FORWARD, two static chains, three of a tree, two of policies and the one that drops
// are 9. A path through a common chain has 7.
//
// If the blocks of a rule in one family are one prefix, the rule compares the address
// with it and has no set (model.PrefixGroup). BenchmarkShapes of the drivers compares both
// forms; docs/results/benchmarks.md has figures.
//
// ipBlocks with exceptions: a group of blocks has at most one member for each CIDR and
// exception. The longest member that contains an address decides, so an exception of one
// block hides nothing of another (felixlike/policy/compile/blocks.go). The kernel's ipset
// supports this (nomatch). Interval sets of nftables get ranges (ipsets.WithRanges), at
// most one for each CIDR and exception. Conjunctions have no exceptions: openflow
// programs the remaining addresses as prefixes, up to a bound (docs/reference/limits/size.md).
//
// Interval sets that change while rules look them up, and what a miss would do:
//
//	pod-networks    senders, outside, from-outside: a forged pod address passes
//	                senders, cleartext: a packet between nodes passes in the clear
//	                sources: NAT changes the source of a pod within the cluster
//	                untranslated: drops what is allowed
//	peers           sources: NAT changes the source of a pod within the cluster
//	                untranslated: drops what is allowed
//	cluster         egress-sources: a packet to the cluster gets the address of an Egress
//	                egress-away: and leaves by another node
//	                egress-back, egress-drops, egress-guard: drop what is allowed
//	peer-pods       egress-sources, egress-guard: a peer's pod leaves with its own address
//	networks        (map, layout maps) denies what is allowed: rules of grants only allow
//	senders         (MAC addresses) drops what is allowed
//	n..., c...      (groups of policies) never change: their names are hashes of their members
//
// Look-ups in the first four, and in a new set of a group, must not miss: tables/nftables (renew.go) does not split or merge
// their intervals, and fills new sets first. Look-ups in networks and senders may: a miss only drops what is allowed. The kernel's ipset has a hash of each prefix length, and its driver adds
// members before it deletes others, so it never misses.
//
// Every rule has the comment "flx:<hash> <policy> <rule>". The hash covers that rule
// alone. A driver edits a chain by the difference of two lists of hashes, so unchanged
// rules keep handle and counters. Another program can swap a rule under its comment, and
// an earlier version may have encoded it differently. So the nftables driver also keeps a
// digest of each rule's body as the kernel returns it, and the iptables driver the text
// that iptables-save prints. A rule that differs is replaced.
package rules
