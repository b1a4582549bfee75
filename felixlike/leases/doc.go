// Package leases reads and writes Leases of the agents' namespace, by which agents elect one of them.
//
// client-go's tools/leaderelection has an election. It depends on the full Clientset, which made the agent 14.5 MB larger. So the
// elections are in elect and in felixlike/egress/election, and this package has what they share: the Lease with the same
// fields, and a log with each kind of failure once.
//
// It may not decide who is elected. It is tested by these two.
package leases
