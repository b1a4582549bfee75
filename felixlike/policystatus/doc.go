// Package policystatus writes the condition felixlike.io/Accepted into the status of
// each ClusterNetworkPolicy.
//
//	API server -> informer (spec, generation, status) -> conditions: pure -> server-side apply
//	Lease      -> election: one agent of the cluster writes
//
// What it promises:
//
//   - One writer. All agents read the spec alike (compile.ClusterNetworkPolicy), so it
//     does not matter which one writes. The writer holds a Lease in the agents' namespace
//     and renews it. If it dies, another agent takes the Lease after its duration.
//   - A condition that is right is not written. A condition that somebody else removes or
//     changes again and again is written at most once in Timing.Again. All writes together
//     are limited to five a second.
//   - Conditions of other writers stay: server-side apply owns our condition only.
//   - Nothing waits for this package. A missing right, an API server that is away and a
//     deleted policy are tried again, or forgotten. The log has each kind of failure once,
//     and its end.
//   - In a cluster without ClusterNetworkPolicies it asks for nothing.
//
// The cost of the election does not grow with the cluster: all candidates together ask
// for the Lease at most five times a second, and at least every 15 s.
//
// client-go's tools/leaderelection does the same election. It depends on the full
// Clientset and makes the agent 14.5 MB larger (34.8 MB without it), so the election is
// here, in lease.go: the Lease has the same fields, and like there only the local clock
// decides when a Lease has expired.
//
// The package may not program anything. It is tested against an API server inside the
// test, and against a real one (TestRealAPIServer).
package policystatus
