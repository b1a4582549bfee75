// Package node has what an agent keeps on its node beside policy and host network: the bridge with its ports and uplink, WireGuard's device,
// the way of packets to the enforcement point (Migration), the recovery after a restart of Open vSwitch, and the watches of the node that are
// part of its status. It decides nothing about policy. Its stages are programmed by package driver. It is tested with a switch without packets
// here, and with packets in test/e2e.
package node
