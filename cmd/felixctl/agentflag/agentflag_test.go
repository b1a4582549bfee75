package agentflag

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
)

// someLabs makes the folders of two labs, one with two nodes and one with one.
func someLabs(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for lab, nodes := range map[string][]string{"two": {"n1", "n2"}, "one": {"n1"}} {
		for _, node := range nodes {
			if err := os.MkdirAll(labs.NodeDir(root+"/"+lab, node), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	return root
}

// TestTarget: the agent is that of --socket or --lab, else that of the environment. Both at
// once, and a lab or node that does not exist, are wrong usage.
func TestTarget(t *testing.T) {
	root := someLabs(t)
	const both = "are both"
	socket := func(lab, node string) string { return labs.ControlSocket(root, lab, node) }
	for _, test := range []struct {
		socket, lab string // of the environment
		args        string
		whole       bool
		// want is a socket, "whole NAME", or part of an error.
		want string
	}{
		{want: defaultSocket()},
		{args: "--socket /nowhere/a", want: "/nowhere/a"},
		{args: "--lab two/n1", want: socket("two", "n1")},
		{args: "--lab two --node n2", want: socket("two", "n2")},
		{args: "--lab two/n1 --node n2", want: "--lab names a node already"},
		{args: "--lab one", want: socket("one", "n1")},
		{args: "--lab two", want: "must be NAME/NODE; the nodes are n1, n2"},
		{args: "--lab two", whole: true, want: "whole two"},
		{args: "--lab two/n2", whole: true, want: socket("two", "n2")},
		{args: "--lab two/n3", want: "lab two has no node n3; the nodes are n1, n2"},
		{args: "--lab tow/n1", want: "there is no lab tow; there are: one, two"},
		{args: "--lab two/", want: "must be NAME/NODE"},
		{args: "--lab two/n1/x", want: "must be NAME/NODE"},
		{args: "--lab two/n1 --socket /nowhere/a", want: both},
		{args: "--lab= --socket /nowhere/a", whole: true, want: "/nowhere/a"},
		{socket: "/nowhere/b", want: "/nowhere/b"},
		{lab: "two/n2", want: socket("two", "n2")},
		{lab: "two/n2", args: "--socket " + defaultSocket(), want: defaultSocket()},
		{lab: "two/n2", args: "--lab one/n1", want: socket("one", "n1")},
		{socket: "/nowhere/b", args: "--lab two/n1", want: socket("two", "n1")},
		{lab: "none", want: `FELIXCTL_LAB="none": there is no lab none`},
		{socket: "/nowhere/b", lab: "two/n2", want: "FELIXCTL_SOCKET and FELIXCTL_LAB are both set"},
	} {
		t.Run(test.socket+test.lab+test.args, func(t *testing.T) {
			t.Setenv(SocketVariable, test.socket)
			t.Setenv(LabVariable, test.lab)
			target := Target{WholeLab: test.whole}
			got := ""
			c := &cobra.Command{SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error {
				if got = target.Socket(); target.Lab != "" && target.Node == "" {
					got = "whole " + target.Lab
				}
				return nil
			}}
			target.Flags(c)
			target.LabFlags(c)
			c.SetArgs(append(strings.Fields(test.args), "--lab-root", root))
			err := c.ExecuteContext(t.Context())
			if err != nil {
				got = err.Error()
			}
			if got != test.want && (err == nil || !strings.Contains(got, test.want)) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// TestExplicit: a command that acts on this machine does so whatever the environment says, and on a node of a lab if --lab names one. Who gives an
// empty name does not mean this machine.
func TestExplicit(t *testing.T) {
	root := someLabs(t)
	t.Setenv(SocketVariable, "/nowhere/b")
	for _, test := range []struct{ args, want string }{
		{"", "/"},
		{"--lab two/n1", "two/n1"},
		{"--lab one", "one/n1"},
		{"--lab=", "must be NAME/NODE"},
		{"--lab two", "must be NAME/NODE; the nodes are n1, n2"},
		{"--lab two/n3", "lab two has no node n3"},
		{"--lab none", "there is no lab none"},
	} {
		for _, lab := range []string{"", "two/n2", "two", "none"} {
			t.Setenv(LabVariable, lab)
			var target Target
			c := &cobra.Command{SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error { return nil }}
			target.Explicit(c)
			c.SetArgs(append(strings.Fields(test.args), "--lab-root", root))
			got := ""
			if err := c.ExecuteContext(t.Context()); err != nil {
				got = err.Error()
			} else {
				got = target.Lab + "/" + target.Node
			}
			if !strings.Contains(got, test.want) || test.want == "/" && got != test.want {
				t.Errorf("%q with %s=%q: %q, want %q", test.args, LabVariable, lab, got, test.want)
			}
		}
	}
}

// TestRootOfTheEnvironment: FELIXCTL_LAB_ROOT names the folder of the labs for commands with --lab-root and without; the flag is stronger.
func TestRootOfTheEnvironment(t *testing.T) {
	root, other := someLabs(t), t.TempDir()
	t.Setenv(labs.RootVariable, root)
	for _, c := range []struct {
		args string
		fits bool
	}{{"--lab one", true}, {"--lab one --lab-root " + other, false}} {
		for _, withFlag := range []bool{true, false} {
			target := &Target{}
			command := &cobra.Command{Use: "x", Run: func(*cobra.Command, []string) {}, SilenceErrors: true, SilenceUsage: true}
			target.Flags(command)
			if withFlag {
				target.LabFlags(command)
			} else if !c.fits {
				continue
			}
			command.SetArgs(strings.Fields(c.args))
			err := command.Execute()
			if (err == nil) != c.fits || c.fits && target.Socket() != labs.ControlSocket(root, "one", "n1") {
				t.Errorf("%s, flag %v: %v, socket %s", c.args, withFlag, err, target.Socket())
			}
		}
	}
}

// TestCompletion: --lab is completed by the nodes of labs, and by labs where a whole lab can be asked.
func TestCompletion(t *testing.T) {
	target := Target{Root: someLabs(t)}
	if got, want := target.complete("t"), []string{"two/n1", "two/n2"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	target.WholeLab = true
	if got, want := target.complete(""), []string{"one", "one/n1", "two", "two/n1", "two/n2"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
