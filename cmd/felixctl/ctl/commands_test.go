package ctl

import "testing"

// TestCommandsCanBeMade: a flag that is defined twice panics in every command of felixctl.
func TestCommandsCanBeMade(t *testing.T) {
	for _, c := range Commands() {
		if c.Short == "" || c.Flags().Lookup("help") != nil {
			t.Errorf("%s: %q", c.Name(), c.Short)
		}
		c.InitDefaultHelpFlag()
	}
}
