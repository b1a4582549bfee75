// Command felixlike-cni is the CNI plugin: it hands the container runtime's
// requests to the node's agent. It is not for people to call; without CNI_COMMAND
// it prints its version.
//
// A node that boots can have systemd call it as felixlike-cni restore-hosts [DIRECTORY]:
// it then programs the policies of the node itself that the agent has confirmed last.
//
// Exit codes: 0 success; 1 an error, printed on standard output as CNI wants it, or on
// standard error by restore-hosts.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/felixlike/felixlike/cni/plugin"
	"github.com/felixlike/felixlike/felixlike/hosts/boot"
	"github.com/felixlike/felixlike/felixlike/version"
)

// bootTimeout bounds what the boot of a node waits for.
const bootTimeout = 30 * time.Second

func main() {
	if len(os.Args) > 1 && os.Args[1] == boot.Command && os.Getenv("CNI_COMMAND") == "" {
		os.Exit(restoreHosts(os.Args[2:]))
	}
	plugin.Main("felixlike-cni " + version.String())
}

func restoreHosts(args []string) int {
	dir := boot.Dir
	if len(args) > 0 {
		dir = args[0]
	}
	ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
	defer cancel()
	did, err := boot.Load(ctx, dir, 0)
	if did != "" {
		fmt.Println(did)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the policies of this node:", err)
		return 1
	}
	return 0
}
