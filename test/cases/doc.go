// Package cases shows single policies, and their programmed state under each backend.
//
// Each file of testdata is a case: a txtar archive. Its first lines describe it.
// The input is policy.yaml. A case that does not use testdata/cluster.yaml also has a
// cluster.yaml. The test writes the other files:
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
// In verdicts, port 4242 stands for all ports that no policy mentions. An address such as
// ip:198.51.100.1 is a first or last address of a block, or one right beside it.
//
// The verdicts are those of the reference evaluator (felixlike/policy/oracle). The test follows
// each packet through the programmed state of each backend and compares. As root it also
// programs the kernel and compares its state with the listing.
//
// To write the files again: go test ./test/cases -update
package cases
