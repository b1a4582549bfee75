// Package ui serves pages about a cluster to the browser of the person who started it: health, who may reach
// whom, one pod, a trace, denied packets, the effect of a change. It asks the agents by felixctl's own
// commands, on this machine or by kubectl exec, and installs and changes nothing. It listens on 127.0.0.1
// only, and answers only requests with its token. Verdicts are cmd/felixctl/preview's, sums are
// felixlike/report's. It is tested with answers that the tests make, in a real browser, and on a lab.
package ui
