// Package rules renders the model to generic chains: the static chains that
// every packet of a pod passes, one chain a policy and direction, one chain
// for each distinct list of policies that applies to endpoints, and their
// names. Both netfilter backends use it; only the dispatch from addresses to
// chains differs between them: verdict maps, or trees of chains.
//
// It is pure: no I/O, equal input gives equal output byte by byte. It is
// tested by the text of what it renders, and by packets in the drivers' and
// end-to-end tests.
//
// The path of a packet through the chains, where gw is the gateway port:
//
//	prerouting (base chain, before conntrack)
//	  in by a pod's own interface, around the switch . drop
//	forward (base chain, hook forward)
//	  of a connection marked as allowed, no SYN ..... accept
//	  neither in nor out by gw ...................... return
//	  in by gw   jump judge-egress
//	  |            invalid .......................... drop
//	  |            jump common-out: policies of many pods
//	  |            source address -> verdict map: the chain of the policies
//	  |              that isolate the source's egress; a policy that allows
//	  |              marks the packet as judged, and it returns; one without
//	  |              the mark is dropped at the end of the chain. Where a rule
//	  |              cannot do both (iptables, entries of maps), it goes to
//	  |              allowed-out, which marks
//	  |            own pod prefix, but no endpoint .... drop
//	  |            from a peer node ................... mark as judged
//	  else       jump judge-outside
//	  |            invalid .......................... drop
//	  |            source in a pod prefix: forged ... drop
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
// Whatever policy denies goes to denied-out or denied-in, and is dropped there: the
// end of a chain of policies, a rule that denies, the address of a pod that is
// closed. While somebody follows denied packets, these two chains report them before they
// drop them. The chain no-service, for packets to addresses that no Service has, does the
// same.
//
// What was judged and gets past forward has its connection marked as allowed, if
// it comes from whoever began it, in a base chain of its own (allowed, hook
// postrouting): to be established is not enough, since connections come to be while
// there is no policy as well. If another program flushes forward, packets pass without
// MarkJudged, and their connections are not marked as allowed.
//
// Within the cluster what pods send keeps its source, whatever others masquerade
// (postrouting); on the way out it becomes the node's. Where others share our table,
// what policy let through is accepted before they see it (passed, see Passed). The
// backend whose policy is in the switch has chains of its own (see Host).
//
// While a table is made from nothing, guard-forward and guard-prerouting stand
// in the place of forward and prerouting (see Guard).
//
// A packet between two pods of one node passes once and is judged in both
// directions by that one pass. Egress returns before ingress begins. Kernels before
// 2026 follow every path from the base chains when they validate a change of a rule.
// With ingress below each rule that allows egress, the number of paths would be the
// product of both (TestPathsAreLinear in cmd/felixctl/dump/wanted counts them).
//
// For the same reason a common chain replaces jumps from the chains of many pods; it
// matches the pods by a set of addresses (see Common). It leads to large policies of
// many pods, to lists of policies of the admin tier, and to the chains of many pods
// with equal policies. The managers choose these by the rule visits they save.
//
// For drivers without verdict maps, the root of a prefix tree stands in a
// map's place (AddressTree): its rules jump to the chains of address prefixes,
// those go to longer ones, and a leaf's rules compare whole addresses. The
// longest path, through a tree to a rule that denies, is 9 chains.
package rules
