// Package migrate converts policies of Calico and Cilium to objects that felixlike reads. It names
// everything that has no counterpart. A rule that allows is left out if it cannot be converted. An object with a
// rule that denies and cannot be converted is left out as a whole. Everything that may be allowed although an original denies it
// is marked (Loss.AllowsMore, Result.AllowsMore).
//
// It reads files and writes text. It may not ask a cluster or an agent. Tests judge the converted objects with
// the oracle, and compare the verdicts with tables that follow the documents of Calico and Cilium.
//
// The command kube-proxy converts no policy: it reads kube-proxy's objects and prints the steps to serviceProxy: full.
package migrate
