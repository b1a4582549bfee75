// Package supervisor keeps a lab alive between commands: one background
// process runs the lab, holds its daemons as foreground children and its
// sockets, and takes orders on a unix socket that only root may use.
//
// It adds only remote access to package lab. If it fails,
// lab.Cleanup removes the lab. It is tested by starting one.
package supervisor

import (
	"path/filepath"
	"time"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/test/lab"
)

// Paths of the API.
const (
	statePath   = "/" + labs.APIVersion + "/state"
	probePath   = "/" + labs.APIVersion + "/probe"
	restartPath = "/" + labs.APIVersion + "/restart"
)

// probeRequest is the body of a probe order.
type probeRequest struct {
	Probes  []lab.Probe   `json:"probes"`
	Timeout time.Duration `json:"timeoutNanoseconds"`
}

// restartRequest is the body of an order to restart a node's agent.
type restartRequest struct {
	Node string `json:"node"`
}

func logPath(root, name string) string { return filepath.Join(root, name, "supervisor.log") }
