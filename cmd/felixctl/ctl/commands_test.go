package ctl

import (
	"strings"
	"testing"
)

// TestCommandsCanBeMade: a flag that is defined twice panics in every command of felixctl.
func TestCommandsCanBeMade(t *testing.T) {
	for _, c := range Commands() {
		if c.Short == "" || c.Flags().Lookup("help") != nil {
			t.Errorf("%s: %q", c.Name(), c.Short)
		}
		c.InitDefaultHelpFlag()
	}
}

// TestExamples: the help of each command has examples.
func TestExamples(t *testing.T) {
	for _, c := range Commands() {
		if !strings.Contains(c.Example, "felixctl "+c.Name()) {
			t.Errorf("felixctl %s --help has no example", c.Name())
		}
	}
}
