package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// errRights is the answer to an agent that may not change the node's network.
var errRights = errors.New("the agent may not change this node's network: run it as root, or with the capabilities of the container agent in deploy/base/daemonset.yaml (CAP_NET_ADMIN is missing)")

// checkRights returns errRights if the calling thread has no CAP_NET_ADMIN.
func checkRights() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // version 3 has 64 bits
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read the agent's capabilities: %w", err)
	}
	if data[0].Effective&(1<<unix.CAP_NET_ADMIN) == 0 {
		return errRights
	}
	return nil
}
