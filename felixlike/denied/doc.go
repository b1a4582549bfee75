// Package denied names denied packets: it reads the dataplane's reports, and finds the pods or nodes and the
// policy of each packet.
//
// It decides nothing, and does not switch reports on: the driver does, while a client follows. Packets are
// parsed from untrusted bytes. The tests have written packets and models, and a namespace with a kernel that
// reports; test/e2e has a whole node.
//
// Every packet that policy denies goes to one place, which drops it. While a client
// follows (felixctl drops, /v1/drops), that place reports the packet first
// (felixlike/drops.go):
//
//	            drops in                                   reports by                   bound
//	netfilter   chains denied-in, denied-out, for the ends a rule before the drop, to   "limit" in
//	            of isolated pods, rules that deny, and     a group of NFLOG (26552)     the rule
//	            closed pods
//	openflow    the dropping flows of tables 45, 60, 61    actions of these flows: a    a meter
//	            and of 85, 100, 101                        packet-in under an id of     (26552)
//	                                                       ours
//
// Packets of pods to an address of a Service prefix that no Service has go to the chain
// no-service, which reports them in the same way. Under openflow it is in the host's
// table (felixlike: TestUnclaimedServices; managers:
// TestHostReportsWhatGoesToNoService).
//
// Reporting is part of the desired state (model.DenialsUpdate): it is programmed,
// repaired and dumped like everything else. The agent's history of denied packets (packetlog.History) has it on from the first apply. Under
// netfilter it is one rule in each of three chains; under openflow one bundle, and one
// rule in no-service. The agent adds the names: addresses are those of pods and nodes,
// and the isolating policies follow from the model. Reporting is tried before, in a
// scratch network namespace, or by a flow that no packet reaches. If a switch still
// refuses it, policy is programmed without it.
//
// Rules with Log report in the same way, to a group of their own (26553), from a rule before
// each decision. The report has the key of the rule (rules.LogKey). Under openflow the
// deciding flow sends the packet to an id of its own, and a register has the rule's id
// (policyflows.LogActions). felixlike/policylog.go
// listens while there is such a rule, and turns the reports on (model.LogsUpdate).
//
// Gaps in numbers show lost reports. Counters show the reports that the bound left out; they are read after
// as many reports as the bound lets through (felixlike: TestFollowersShareReports, TestWhatCannotBeFollowed,
// TestNotShown; test/e2e: TestDrops, with packets, kills and a flood under each backend).
package denied
