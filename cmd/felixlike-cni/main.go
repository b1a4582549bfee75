// Command felixlike-cni is the CNI plugin: it hands the container runtime's
// requests to the node's agent. It is not for people to call; without CNI_COMMAND
// it prints its version.
//
// Exit codes: 0 success; 1 an error, printed on standard output as CNI wants it.
package main

import (
	"github.com/felixlike/felixlike/cni/plugin"
	"github.com/felixlike/felixlike/felixlike/version"
)

func main() { plugin.Main("felixlike-cni " + version.String()) }
