package main

import (
	"testing"

	"github.com/felixlike/felixlike/test/clitest"
)

// TestExamples: each command has examples, of commands and flags that exist.
func TestExamples(t *testing.T) {
	clitest.Examples(t, rootCommand(), clitest.Program("felixlike-agent"))
}
