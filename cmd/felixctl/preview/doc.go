// Package preview says what a change of NetworkPolicies and ClusterNetworkPolicies would
// do, before anybody makes it: which packets would get another verdict, which rules and
// flows the node would add and remove, and which established connections the new policies
// would not let begin again.
//
// Verdicts are exact and for every port: pods that no policy can tell apart are
// judged together, ports between two numbers that some rule names are judged once,
// and so are addresses between two blocks. The judge is felixlike/policy/oracle, which all
// backends are tested against. What would be programmed is cmd/felixctl/dump/wanted's word.
//
// The package enforces nothing, does no I/O and asks no kernel. It is tested by
// the truth tables, whose every step is predicted from the one before, and on random
// clusters with all tiers.
package preview
