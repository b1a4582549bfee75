// Package driver is the loop of the agent that owns the
// dataplane. It takes objects from the datastore and attachments from the
// bridge, feeds the policy engine, hands the engine's updates to the managers
// and applies their desired state, stage by stage. The order leaves no moment without
// policy:
//
//	netfilter (one transaction) > bridge and ports >
//	conntrack (addresses that changed hands) > host network >
//	policy flows (one bundle) > forwarding flows (one bundle)
//
// A backend has one of two places: a netfilter backend is the first stage, openflow is the
// stage of policy flows. During a change of the backend (handover.go) both stages are
// there. A new pod has no forwarding flows until its policy is programmed, so its first
// packet meets its policy. If the two backends judge at different enforcement points, the
// allowed connections are migrated (Migration), also when an agent starts with another
// backend in its configuration than the one in force (becoming.go; startup.go in one step).
//
// Each part of the driver is a type that owns its state. It calls only those below it:
//
//	Driver      the loop; answers control socket, CNI and probes
//	handovers   changes of the backend; package handover has migrations, and what happens at a start
//	status      package: status, readiness, metrics, notices
//	feed        objects to the engine, the engine's updates to the managers
//	scheduler   sync cycles, and runs beside them
//	admission   package: the queue of large policies: when the engine gets them, and which are refused
//	stages      runs of stages, repairs, the backend in force
//	quarantine  package: quarantined objects, and whom they concern
//	cluster     package: objects, model and problems; the first listings
//	queue       calls of other goroutines into the loop
//
// No part writes a field of another one. The packages do not know the driver.
//
// A feature beside the stages is a Module in a package of its own: audit, revalidate, packetlog, counters, egress. It sees the driver through a View, and the
// driver knows none of them.
//
// The package renders nothing and writes to no kernel itself. It is tested
// with recording stages here, and with everything real in test/e2e.
//
// docs/design/driver.md has the order of stages, the invariants and foreign changes, quarantine.md quarantined objects and the admission of large
// policies, and handover.md changes of the backend with the migration of connections.
package driver
