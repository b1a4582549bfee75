// Package cni attaches pods to the node's bridge: it makes the veth pair, sets
// the pod's addresses and routes, and registers the host side in OVSDB, where
// the agent finds it. The CNI plugin and the lab use the same code.
//
// It works in the network namespace of the calling thread (the node's) and in
// the one that the Spec names (the pod's), and nowhere else. It knows nothing
// of policy: a pod that is attached stays closed until the agent programs it.
// It is tested on real namespaces with a private Open vSwitch.
package cni
