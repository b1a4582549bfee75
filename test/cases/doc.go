// Package cases shows single policies, and their programmed state under each backend.
//
// Each file of testdata is a case: a txtar archive. Its first lines describe it.
// The input is policy.yaml. A case that does not use testdata/cluster.yaml also has a
// cluster.yaml. One with the file isolation isolates namespaces. The test writes the other files:
//
//	nft             chains, sets and maps of backend nftables, as nft lists them
//	iptables-save   chains of backend iptables-nft, IPv4
//	ip6tables-save  the same of IPv6, in cases about IPv6 only
//	ipset-save      sets of backend iptables, as ipset saves them
//	flows           flows of backend openflow, as ovs-ofctl dumps them
//	problems        the agent's reports on the objects
//	verdicts        the allowed and denied connections
//
// no-policy.txtar has the state of node n1 without policies. The other cases show only
// the chains, sets, maps, elements and flows that they add. After a "#" are the names for
// hashes and addresses.
//
// Each file of testdata/steps is a life of an agent, step by step. It begins with
// testdata/cluster.yaml. The input of step 1 is one or more of these:
//
//	1/delete    objects to delete, one a line: Pod shop/web
//	1/set.yaml  objects to add or to change
//	1/isolation namespaces are isolated from now on
//	1/restart   the agent restarts, and the objects change while it is down
//
// The test writes the changes of the step, as felixctl diff prints them:
//
//	1/nft       of chains, sets and maps of backend nftables
//	1/iptables  of chains (IPv4) and sets of backend iptables-nft
//	1/flows     of flows of backend openflow
//	1/problems  as above, if they are others than before
//
// One engine and its managers take all steps. After each, the test compares their state with the
// state of an agent that starts then. A pod gets a port of the bridge when it appears on the node.
//
// In verdicts, port 4242 stands for all ports that no policy mentions. An address such as
// ip:198.51.100.1 is a first or last address of a block, or one right beside it.
//
// The verdicts are those of the reference evaluator (felixlike/policy/oracle). The test follows
// each packet through the programmed state of each backend and compares. As root it also
// programs the kernel and compares its state with the listing.
//
// To write the files again: go test ./test/cases -update
package cases
