// Package agentflag has the flags --socket and --lab, by which a command of felixctl finds the
// agent that it asks, and their variables of the environment. It reads the folders of labs
// and asks nobody. It is tested with folders that it makes.
package agentflag

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
)

// Variables of the environment that stand for the flags --socket and --lab.
const (
	SocketVariable = "FELIXCTL_SOCKET"
	LabVariable    = "FELIXCTL_LAB"
)

// Target is the agent that a command asks.
type Target struct {
	// Root is the folder of the labs; empty for the default.
	Root string
	// Lab is a lab's name, and Node one of its nodes. Both are empty for this machine.
	Lab, Node string
	// WholeLab is set by commands that also answer for all nodes of a lab.
	WholeLab bool
	// AllNodes is set by commands that felixctl runs for each node of a lab, if no node is named.
	AllNodes bool

	socket, lab, node string
}

// Flags adds the flags to a command, and reads the environment before the command runs.
func (t *Target) Flags(c *cobra.Command) {
	form := "NAME/NODE"
	if t.WholeLab || t.AllNodes {
		form = "NAME[/NODE]"
	}
	short := "NAME will do for a lab with one node"
	if t.AllNodes {
		short = "NAME is for all its nodes"
	}
	f := c.Flags()
	f.StringVar(&t.socket, "socket", defaultSocket(), "control socket of the agent (or "+SocketVariable+" of the environment)")
	f.StringVar(&t.lab, "lab", "", "`"+form+"`: ask a lab (or "+LabVariable+" of the environment); "+short)
	// The flag is there: it was just made.
	_ = c.RegisterFlagCompletionFunc("lab", func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return t.complete(word), cobra.ShellCompDirectiveNoFileComp
	})
	before := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if err := t.resolve(f.Changed("socket"), f.Changed("lab")); err != nil || before == nil {
			return err
		}
		return before(c, args)
	}
}

// LabFlags adds the flags of commands that read the state of a lab's node themselves: the
// folder of the labs, and --node, an older form of --lab NAME/NODE.
func (t *Target) LabFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&t.Root, "lab-root", labs.Root(), "folder of the labs (or "+labs.RootVariable+" of the environment)")
	f.StringVar(&t.node, "node", "", "node of the lab: --lab NAME --node NODE is --lab NAME/NODE")
	_ = f.MarkHidden("node") // the flag is there: it was just made
}

func defaultSocket() string {
	return filepath.Join(config.Defaults().RunDir, control.SocketName)
}

// resolve reads the environment unless a flag was given, and finds the node of the lab.
func (t *Target) resolve(socketGiven, labGiven bool) error {
	if t.node != "" {
		if strings.Contains(t.lab, "/") {
			return errors.New("--node: --lab names a node already")
		}
		t.lab = cmp.Or(t.lab, labs.DefaultName) + "/" + t.node
	}
	if socketGiven && t.lab != "" {
		return errors.New("--socket and --lab are both given: give one of them")
	}
	lab, source := t.lab, "--lab "+t.lab
	if !socketGiven && !labGiven && lab == "" {
		socket := os.Getenv(SocketVariable)
		lab = os.Getenv(LabVariable)
		if socket != "" && lab != "" {
			return fmt.Errorf("%s and %s are both set", SocketVariable, LabVariable)
		}
		t.socket, source = cmp.Or(socket, t.socket), fmt.Sprintf("%s=%q", LabVariable, lab)
	}
	if lab == "" {
		return nil
	}
	return t.find(lab, source)
}

// Explicit adds the flags --lab and --lab-root to a command that acts on this machine unless they name a node of a lab. It does not read
// the environment: a variable that is forgotten in a shell must not keep the command from this machine.
func (t *Target) Explicit(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&t.lab, "lab", "", "`NAME/NODE`: act on a node of a lab, and not on this machine ("+LabVariable+" of the environment does not count); NAME will do for a lab with one node")
	f.StringVar(&t.Root, "lab-root", labs.Root(), "folder of the labs (or "+labs.RootVariable+" of the environment)")
	_ = c.RegisterFlagCompletionFunc("lab", func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return t.complete(word), cobra.ShellCompDirectiveNoFileComp
	})
	c.PreRunE = func(*cobra.Command, []string) error {
		if !f.Changed("lab") {
			return nil
		}
		return t.find(t.lab, "--lab "+t.lab) // also of an empty name: who gives one means no node of his own
	}
}

// find finds the node of a lab that source names.
func (t *Target) find(lab, source string) error {
	var slash bool
	t.Lab, t.Node, slash = strings.Cut(lab, "/")
	if t.Lab == "" || slash && t.Node == "" || strings.Contains(t.Node, "/") {
		return fmt.Errorf("%s: must be NAME/NODE: felixctl lab list has the labs, and felixctl lab status --name NAME the nodes", source)
	}
	if err := t.findNode(); err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	return nil
}

// findNode checks the lab and its node, and chooses the node of a lab with one.
func (t *Target) findNode() error {
	names, err := labs.Names(t.Root)
	if err != nil {
		return err
	}
	if !contains(names, t.Lab) {
		return fmt.Errorf("there is no lab %s; %s", t.Lab, list(names, "no lab is there: felixctl lab up makes one", "there are: "))
	}
	nodes, err := labs.Nodes(t.Root, t.Lab)
	switch {
	case err != nil:
		return err
	case t.Node == "" && len(nodes) == 1:
		t.Node = nodes[0]
	case t.Node == "" && !t.WholeLab:
		return fmt.Errorf("must be NAME/NODE; %s", list(nodes, "the lab has no node", "the nodes are "))
	case t.Node != "" && !contains(nodes, labs.NodeFolder(t.Node)):
		return fmt.Errorf("lab %s has no node %s; %s", t.Lab, t.Node, list(nodes, "it has none", "the nodes are "))
	}
	return nil
}

func contains(all []string, one string) bool {
	for _, a := range all {
		if a == one {
			return true
		}
	}
	return false
}

func list(all []string, none, some string) string {
	if len(all) == 0 {
		return none
	}
	return some + strings.Join(all, ", ")
}

// Socket returns the path of the agent's control socket.
func (t *Target) Socket() string {
	if t.Lab == "" {
		return cmp.Or(t.socket, defaultSocket())
	}
	return labs.ControlSocket(t.Root, t.Lab, t.Node)
}

// complete returns the values of --lab that begin with a word.
func (t *Target) complete(word string) []string {
	names, err := labs.Names(t.Root)
	if err != nil {
		return nil
	}
	var all []string
	for _, name := range names {
		if t.WholeLab || t.AllNodes {
			all = append(all, name)
		}
		nodes, err := labs.Nodes(t.Root, name)
		if err != nil {
			continue // the lab has just gone
		}
		for _, node := range nodes {
			all = append(all, name+"/"+node)
		}
	}
	var fitting []string
	for _, a := range all {
		if strings.HasPrefix(a, word) {
			fitting = append(fitting, a)
		}
	}
	return fitting
}
