// Package felixlike is the agent: it makes the parts of a node from the configuration, and runs them.
//
//	driver    the loop that owns the dataplane: stages, cycles, changes of the backend, modules
//	cluster, admission, quarantine, status, handover   parts of the driver below its loop, which do not know it
//	backend   the three backends
//	node      this node's bridge, network and encryption, and what is watched beside the stages
//	policy, datastore, control, health, metrics, ...   what these use
//
// The package decides nothing about packets, and holds no state of its own but what it wires. With trafficMode networkPolicyOnly it makes fewer
// parts (policyonly.go). It is tested in test/e2e.
package felixlike
