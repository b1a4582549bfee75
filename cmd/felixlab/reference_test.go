package main

import (
	"testing"

	"github.com/felixlike/felixlike/test/clitest"
)

// TestReference: docs/reference/cli-lab.md has the help texts of all commands.
func TestReference(t *testing.T) {
	root := rootCommand()
	root.Use = "felixctl" // it is run by that name
	clitest.Reference(t, root, "../../docs/reference/cli-lab.md", "Commands for labs and measurements",
		"The commands of `felixctl lab` and `felixctl bench`, which the program `felixlab` runs. [Commands](cli.md) has the others.")
}
