package main

import (
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/cluster"
	"github.com/felixlike/felixlike/test/clitest"
)

// TestExamples: each command has examples, of commands and flags that exist. Those for a cluster
// are tested in the package cluster, those of lab and bench in felixlab.
func TestExamples(t *testing.T) {
	clitest.Examples(t, rootCommand(), func(words []string) ([]string, bool) {
		if cluster.Wanted(words) {
			return nil, false
		}
		return clitest.Program("felixctl")(words)
	})
}
