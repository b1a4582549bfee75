// Package election elects the node that holds the address of an Egress, by Leases of the agents' namespace:
//
//	egress-ADDRESS        one of each address; its holder is the node with the address. Written when that changes.
//	egress-node-NODE      one of each node that holds addresses, or wants one. The node renews it every Timing.Renew.
//
//	API server -> Watch: egress-ADDRESS -> Leases -> the driver, on every node
//	Egresses (Wanted), Leases of the other nodes -> elector: one action after the other -> API server, Kernel
//
// So 255 addresses of a node cost as many renewals as one.
//
// # Why two nodes never have one address
//
// A node A has an address only while Kernel lets it, which is until Valid after the start of the last renewal that has succeeded. The
// kernel ends that time, also if the agent has died (ovsfwd/hostnet), and drops packets with the address afterwards
// (rules.Egress). A *session* of a node begins with a renewal, and is over when its time has passed without another one; an answer that
// comes later begins a new session. In each session, the node writes the Lease of an address before it holds the address.
//
// Another node B takes an address from A in this order:
//
//  1. B reads the Lease of the address, with its version.
//  2. B reads the Lease of A. It is the same that B has read first at least Expiry ago, which is longer than Valid.
//  3. B writes the Lease of the address if that is still the same version.
//
// By 2, the last renewal that the API server had at that time was begun more than Expiry ago, so that session of A is over. Then A
// may begin a new one, and has to write the Lease of the address in it. Either this comes before 1: then the renewal did too, and B sees it
// in 2. Or it comes between 1 and 3: then 3 fails. Or it comes after 3: then A reads that B is the holder.
//
// # Addresses of pools
//
// The Lease of an address also says which Egress it has been allocated to (labelOwner). The policy engine of each node reads this from the
// reported Leases, and proposes a free address to an Egress without one, a claim. A candidate takes it as any other address, and writes the owner
// into the Lease. So the write of the Lease is the allocation, and only one node succeeds. A node writes and deletes such Leases only if the
// engine has answered the Leases that it has seen (view.settled). While the owner exists, the Lease stays, also without a node.
//
// Only the times of one clock are compared. All clocks have to run at the same speed, up to the difference of Valid and Expiry.
//
// A node that no longer needs an address removes it from its interface before it deletes the Lease of the address. A Lease without an Egress
// whose node is dead, or that has none, is deleted by another node, in the same order: that is as if B took the address, and gave it up at once.
// The node that had the address last does so at once, others wait for Timing.Orphan.
//
// # Who takes an address
//
// The candidates of an address have an order (felixlike/policy). Each waits Timing.Stagger longer than the one before. A candidate looks at the
// Leases of other nodes every Timing.Poll, or every Timing.PerCandidate times the number of candidates if that is more. A node that holds an
// address keeps it, also if one before it in the order comes back.
//
// The package may not program anything but by Kernel. It is tested with a clock of its own, under cut connections, dead agents and late
// answers (TestOneHolder, TestTakeover, TestPool), and on packets with agents and an API server by TestEgressElection of test/e2e.
package election
