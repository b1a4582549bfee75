package main

import (
	"testing"

	"github.com/felixlike/felixlike/test/clitest"
)

// TestExamples: each command has examples, of commands and flags that exist.
func TestExamples(t *testing.T) {
	root := rootCommand()
	clitest.Examples(t, root, func(words []string) ([]string, bool) {
		args, is := clitest.Program("felixctl", "felixlab")(words)
		// The others are felixctl's own.
		return args, is && len(args) > 0 && (args[0] == "lab" || args[0] == "bench")
	})
}
