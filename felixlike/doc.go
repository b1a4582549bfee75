// Package felixlike is the driver of the agent: one loop that owns the
// dataplane. It takes objects from the datastore and attachments from the
// bridge, feeds the policy engine, hands the engine's updates to the managers
// and applies what they want, stage by stage, in an order that never leaves
// an open moment:
//
//	netfilter (one transaction) > conntrack (addresses that changed hands) >
//	bridge and ports > host network > policy flows (one bundle) >
//	forwarding flows (one bundle)
//
// of which a backend is the first stage, or that of policy flows. A pod that is
// new has no forwarding flows until its policy is programmed, so its first packet
// meets its policy. A change of the backend (handover.go) has both; where they judge
// in different places (crossing.go), connections are carried from one tracking to
// the other, and so they are when an agent starts with another backend than
// the one in force (arrival.go). Nothing is programmed, and nothing swept,
// before the first full listing of objects and attachments is in.
//
// Stages run in goroutines of their own, one pass over all of them after the
// other; the loop never waits for one. A stage with managers of its own
// (policy) is also applied beside the passes: when somebody else changed what
// it programs, when what it set aside is to be tried again, and when policy
// changes while the stages behind it are slow. The managers of a stage that
// runs are left alone; what they have to be told waits.
//
// The package renders nothing and writes to no kernel itself. It is tested
// with recording stages here, and with everything real in test/e2e.
package felixlike
