package ctl

import (
	"bytes"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/internal/labs"
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

// TestTarget: the agent is that of --socket or --lab, else that of the environment. Both at once, and a lab without a node, are wrong usage.
func TestTarget(t *testing.T) {
	const both = "were all set"
	lab := func(node string) string { return labs.ControlSocket("", "no-such", node) }
	for _, test := range []struct {
		socket, lab string // of the environment
		args        string
		want        string
	}{
		{args: "--socket /nowhere/a", want: "at /nowhere/a:"},
		{args: "--lab no-such/n1", want: "at " + lab("n1") + ":"},
		{args: "--lab no-such", want: "must be NAME/NODE"},
		{args: "--lab no-such/n1/x", want: "must be NAME/NODE"},
		{args: "--lab no-such/n1 --socket /nowhere/a", want: both},
		{socket: "/nowhere/b", want: "at /nowhere/b:"},
		{lab: "no-such/n2", want: "at " + lab("n2") + ":"},
		{lab: "no-such/n2", args: "--socket /nowhere/a", want: "at /nowhere/a:"},
		{socket: "/nowhere/b", args: "--lab no-such/n1", want: "at " + lab("n1") + ":"},
		{lab: "no-such", want: `FELIXCTL_LAB="no-such": must be NAME/NODE`},
		{socket: "/nowhere/b", lab: "no-such/n2", want: "FELIXCTL_SOCKET and FELIXCTL_LAB are both set"},
	} {
		t.Run(test.socket+test.lab+test.args, func(t *testing.T) {
			t.Setenv(socketVariable, test.socket)
			t.Setenv(labVariable, test.lab)
			c := statusCommand()
			c.SilenceErrors, c.SilenceUsage = true, true
			c.SetOut(&bytes.Buffer{})
			c.SetArgs(strings.Fields(test.args))
			if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}
