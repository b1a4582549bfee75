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
// backend than the one in force (startup.go).
//
// Each part of the driver is a type that owns its state. It calls only those below it:
//
//	Driver      the loop; answers control socket, CNI and probes
//	handovers   changes of the backend
//	reporter    status, readiness, metrics, notices
//	feed        objects to the engine, the engine's updates to the managers
//	scheduler   passes, and runs beside them
//	turns       large policies: when the engine gets them, and which are refused
//	stages      runs of stages, quarantine, repairs, the backend in force
//	cluster     objects, model and problems; the first listings
//	queue       calls of other goroutines into the loop
//
// A feature beside the stages is a Module in a package of its own: audit, revalidate, packetlog, counters, egress. It sees the driver through a View, and the
// driver knows none of them.
//
// The package renders nothing and writes to no kernel itself. It is tested
// with recording stages here, and with everything real in test/e2e.
//
// # A pass
//
// A pass applies all stages in the order above, each with a deadline. No stage needs an
// object that a later stage makes. The closed policy flows of a pod that leaves go after its forwarding
// flows. The backend and conntrack are required stages: while one fails, no flow is
// added, so no new pod gets through without its policy.
//
// A switch that was restarted or flushed has neither policy nor forwarding flows.
// Forwarding flows are sent only over a connection that is older than the last answer to
// the policy stage (node.Bridge.Apply, switchPolicy.settle), so they never come first. The
// policy stage ends when the datapath has revalidated the flows that it had cached under
// the old policy, and so does the forwarding stage if policy is in the switch: its flows
// choose the tables of policy. Only then is a policy in force. On the userspace datapath the agent
// then removes every cached flow, also after a change of forwarding flows: if two cached
// flows overlap, ovs-vswitchd 3.1 may update the wrong one (vswitchd.Client.Purge).
//
// The conntrack stage deletes the connections of addresses that changed hands. An
// established connection passes policy, and the next pod with the address must not
// inherit it. The host network stage pins this node's pods as permanent neighbours of
// the gateway port, so a reused address never leads to the MAC of its last owner.
//
// A failed pass keeps the programmed state. The driver reads everything and retries with
// backoff.
//
// Each stage runs in its own goroutine, and passes run one after another. The loop never
// waits for a stage (driver.go, pass.go): a switch that hangs delays neither policy nor
// status. A stage is also applied alone after a foreign change, and when the next try of a
// quarantined object is due; stages that share managers (bridge, host network, forwarding)
// then wait for the end of the pass. While a stage runs, its managers get no updates. The
// managers of the switch's stages get no updates during a whole pass, so no stage
// programs anything that the policy stage of that pass has not. The policy stage has its
// own managers and shares no state with the others. It may run alone beside a pass while
// later stages are slow: one run at a time, and at most every 10 ms. So policy may be ahead
// of forwarding, and never behind it.
//
// Nothing is programmed or removed before four things are in: the first listing of the datastore,
// the snapshot of attachments, this node's own addresses, and its own object.
// Attachments live in OVSDB (external_ids of the interfaces), so they survive the agent.
// While the agent is down, kernel and switch keep their state. After a restart each
// stage reads it, and an unchanged model writes nothing.
//
// # Foreign changes and quarantine
//
// A stage with a Watch wakes when another program changes its objects. It repairs the
// change and reports the object and the other program. Every repair is logged, counted,
// and listed in the status (the last 20). If an object is changed more than five times a
// minute, the log has only that fact, with the other writer's name. Such a stage reads
// everything at its start, after a failure, and after lost notifications. Stages without
// a Watch, and those with a Watch that misses some changes (iptables and the host network,
// Stage.WatchIncomplete), also read everything at every resync (90 s).
//
// An object that cannot be programmed (tables.Refusal) is quarantined. All others are
// programmed, and the chains that rely on the object drop everything. So does a chain
// that asks several policies of which one is closed; otherwise their order would decide
// (tables.Chain.Asked). The status names the object, its policies or pods, the reason,
// since when, and the next try. Pods are "closed" if their packets pass a closed chain,
// and each policy concerned has a problem. A client that waits for such a pod (CNI,
// felixctl lab apply) gets the error at once. Only the stage that refused is applied
// again when the next try is due.
//
// A panic in a stage or its Watch is a failure of that stage: status reports it, the log
// has its stack, and the stage reads everything before it goes on. For later panics at
// the same place the log has their number instead of the stack. After a panic in a
// manager, its stages keep the programmed state and /healthz fails, so that kubelet
// restarts the agent (panic_test.go). A panic in a request of the CNI plugin fails that
// request.
//
// # Turns and deadlines
//
// The policy engine gets large NetworkPolicies in slices, one slice a pass, and only
// those that apply on this node (turns.go, tieredturns.go, trials.go; docs/LIMITS.md has the limits).
// Until its turn, the engine has the old policy, or a policy for the same pods without
// rules. The same type finds the policies that make an apply miss its deadline. It
// withdraws the policies that are new since the last successful apply, and tries them in
// halves after an apply without them. A policy that changes during the first apply with
// its rules waits for the outcome, so the outcome is about one version
// (TestLargePoliciesTakeTurns, TestMissedDeadlineIsTheRefusalOfItsPolicy,
// TestBusyMachineRefusesNoPolicy, TestRestlessSlowPolicyIsRefused,
// TestFirstApplyThatNeverEnds).
//
// # Handover: a change of the backend
//
// "felixctl backend set" starts it (handover.go, takeover.go):
//
//	building          the new backend gets the whole model and takes part in every pass,
//	                  beside the old one: a packet has to pass both
//	verifying         it is read back; after a difference, once more
//	removing the old  it decides alone; after one such apply, all objects of the old one
//	                  are removed, by name
//	giving up         after five failures, or if it had to quarantine an object: it is
//	                  removed, the old one stays in force, and the caller gets the reason
//
// Both get all changes of policy meanwhile. Nothing is removed before the other backend
// holds it, so there is no moment without policy. Both variants of iptables have the
// same ipsets. From one to the other, the backend that decides keeps them, since the two
// apply a change at different times (TestVariantsShareTheirSets).
//
// An agent that is killed during a handover follows its configuration when it comes
// back. It migrates connections if the other backend judged at the other enforcement
// point (stages "startup" and "carry"), and removes the other backend's objects (stage
// "leftovers"). Without an agent, "felixctl backend cleanup --yes" removes the objects
// of any backend.
//
// # Conntrack migration
//
// Host and switch (Place: kernel, switch) each have a connection tracking of their own.
// A handover between them also leads packets another way (node.Migration):
//
//	carrying          allowed connections are copied to the new enforcement point (ovsfwd/carry):
//	                  before building, before and after packets take the other way, and again
//	                  when none takes the old way any more
//	steering          one bundle leads packets the other way, and the stage waits for the
//	                  switch to revalidate its cached flows
//
// If that fails, packets are led back, with the connections begun meanwhile. A client
// comes back to a port, so no stale entry may stay. A TCP entry begun by a late answer
// is reversed, since the next SYN would be invalid. A connection that ended during the
// change is deleted from the new tracking. Once the switch judges all packets, the
// kernel's TCP connections within the cluster are deleted.
//
// Connections reach the kernel by netlink. They reach the userspace datapath by made-up
// packets that leave by no port. Their sequence numbers are made up too, so the
// datapath's check of TCP sequence numbers is turned off and stays off until
// ovs-vswitchd restarts. SCTP is migrated on the kernel's datapath alone.
//
// Shown by test/e2e: TestBackendHandover (fifty changes under streams, new connections
// and kills, from each backend to each, with servers that push and idle connections),
// TestServicesOverHandover; here: TestBackendChanges, TestBackendChangesPlaces,
// TestBackendThatFailsIsNotTakenOver, TestBackendThatFailsAtTheLastMoment,
// TestStartupHandoverAfterAnotherBackend; ovsfwd/carry: TestConnectionsGoOn,
// TestNextConnectionFromThePort, TestThousands.
package driver
