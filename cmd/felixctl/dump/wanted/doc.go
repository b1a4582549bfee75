// Package wanted computes what a node has to hold from its model: it runs the
// same managers and renderers as the agent, for drivers that only note what is
// wanted of them. It starts no program and asks no kernel, so it answers for a
// backend that is not in force as well, and for objects that are nowhere but in
// files.
//
// It is tested against what the drivers program in real kernels and switches.
//
// The desired state of any backend can thus be rendered without a kernel, also for a
// backend that is not in force. It equals the state that the drivers program
// (TestWantedIsProgrammed). The desired states of all backends give all packets the same
// verdicts (cmd/felixctl/dump/cli: TestBackendsJudgeAlike), and the comparison finds and
// names a wrong rule in one of them (TestWrongRuleIsFound).
package wanted
