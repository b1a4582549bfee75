package main

import (
	"testing"

	"github.com/felixlike/felixlike/test/clitest"
)

// TestReference: docs/reference/cli.md has the help texts of all commands.
func TestReference(t *testing.T) {
	clitest.Reference(t, rootCommand(), "../../docs/reference/cli.md", "Commands", "All commands of felixctl. `kubectl felixlike COMMAND` runs them on the nodes of a cluster: [nodes, output and exit codes](output.md). "+
		"[`felixctl lab` and `felixctl bench`](cli-lab.md) are a program of their own.")
}
