// Package preview shows the effects of a change of NetworkPolicies,
// ClusterNetworkPolicies and Antrea's kinds in advance: packets that would get another verdict, rules and
// flows that the node would add and remove, and established connections that the new
// policies deny. It also shows who may reach whom by the policies of now.
//
// Verdicts are exact and for every port: pods that no policy can distinguish are
// judged together, ports between two numbers that some rule names are judged once,
// and so are addresses between two blocks. The judge is felixlike/policy/oracle, which all
// backends are tested against. cmd/felixctl/dump/wanted computes the rules and flows.
// The package enforces nothing, does no I/O and asks no kernel. It is tested by
// the truth tables, whose every step is predicted from the one before, and on random
// clusters with all tiers.
package preview
