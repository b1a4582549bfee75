// Package policystatus writes the condition felixlike.io/Accepted into the status of
// each ClusterNetworkPolicy.
//
//	API server -> informer (spec, generation, status) -> conditions: pure -> server-side apply
//	Lease      -> election: one agent of the cluster writes
//
// Guarantees:
//
//   - One writer. All agents read the spec alike (compile.ClusterNetworkPolicy), so it
//     does not matter which one writes. The writer holds a Lease in the agents' namespace
//     and renews it. If it dies, another agent takes the Lease after its duration.
//   - A correct condition is not written again. A condition that another program removes or
//     changes again and again is written at most once in Timing.Again. All writes together
//     are limited to five a second.
//   - Conditions of other writers stay: server-side apply owns our condition only.
//   - Nothing waits for this package. After a missing right or a lost API server it tries
//     again; a deleted policy is dropped. The log has each kind of failure once, and its end.
//   - In a cluster without ClusterNetworkPolicies it asks for nothing.
//
// The election is in felixlike/leases/elect.
//
// The package may not program anything. It is tested against an API server inside the
// test, and against a real one (TestRealAPIServer).
package policystatus
