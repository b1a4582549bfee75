package ui

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/felixlike/felixlike/cmd/felixctl/agentflag"
	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// Access is how the pages reach the agents.
type Access interface {
	// Ask runs a command of felixctl with the agents of these nodes, with all if none is named.
	Ask(ctx context.Context, nodes []string, stdin []byte, command ...string) ([]Answer, error)
	// Trace runs felixctl trace by the nodes of both ends together, and returns its output.
	Trace(ctx context.Context, flags ...string) ([]byte, error)
}

// Answer is what a node's agent answered: Out, or a Fault.
type Answer struct {
	Node, Fault string
	Out         []byte
}

// data is what the pages need of one agent.
type data struct {
	// Now is the time by the node's clock, which the times of Hits and Drops are of.
	Now    time.Time      `json:"now"`
	Status control.Status `json:"status"`
	// Layout is the setting nftables.layout in force, empty under other backends.
	Layout string              `json:"layout,omitempty"`
	Hits   control.Hits        `json:"hits"`
	Drops  control.DropHistory `json:"drops"`
	// Faults name what could not be read.
	Faults []string `json:"faults,omitempty"`
	// Objects are a control.Objects, if they were asked for, and Failsafe the ports that no policy closes for a node.
	Objects  json.RawMessage `json:"objects,omitempty"`
	Failsafe model.Failsafe  `json:"failsafe,omitzero"`
	// ServiceCIDRs are the prefixes of Services that the agent knows, of settings and datastore.
	ServiceCIDRs []netip.Prefix `json:"serviceCIDRs,omitempty"`
}

// collect asks one agent.
func collect(ctx context.Context, agent *control.Client, withObjects bool) (data, error) {
	d := data{Now: time.Now()}
	var err error
	if d.Status, err = agent.Status(ctx); err != nil {
		return d, err
	}
	note := func(what string, err error) {
		if err != nil {
			d.Faults = append(d.Faults, fmt.Sprintf("%s: %v", what, err))
		}
	}
	d.Hits, err = agent.Hits(ctx)
	note("counters of rules", err)
	if d.Drops, err = agent.DropHistory(ctx); err != nil {
		d.Drops.Fault = err.Error()
	}
	note("denied packets", err)
	m, err := agent.Model(ctx)
	note("model", err)
	d.Layout, d.ServiceCIDRs = m.Settings.NFTablesLayout, slices.Concat(m.Settings.ServiceCIDRs, m.ServiceCIDRs)
	if m.Failsafe != nil {
		d.Failsafe = *m.Failsafe
	}
	if withObjects {
		o, err := agent.Objects(ctx)
		if err != nil {
			return d, err
		}
		if d.Objects, err = json.Marshal(o); err != nil {
			return d, err
		}
	}
	return d, nil
}

// dataCommand prints the data of this node's agent. The pages of a cluster run it in the agents' pods.
func dataCommand() *cobra.Command {
	var t agentflag.Target
	objects := false
	c := &cobra.Command{
		Use: "data", Hidden: true, Args: cobra.NoArgs, Short: "Print what the pages need of this node's agent, in JSON",
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := collect(c.Context(), control.NewClient(t.Socket()), objects)
			if err != nil {
				return err
			}
			return json.NewEncoder(c.OutOrStdout()).Encode(d)
		},
	}
	t.Flags(c)
	c.Flags().BoolVar(&objects, "objects", false, "with the objects of the cluster")
	return c
}

// local is the Access to the agents of a lab, or to that of one socket. It runs the commands in this process.
type local struct {
	target   *agentflag.Target
	commands func() []*cobra.Command
	// lab finds the program felixlab.
	lab func() (string, error)
	// timeout bounds the command of one agent.
	timeout time.Duration
}

// nodeTimeout is as long as kubectl felixlike waits for a node.
const nodeTimeout = time.Minute

// thisNode names the node of a socket that has not told its name.
const thisNode = "this node"

// sockets returns the sockets by node.
func (l local) sockets(nodes []string) (map[string]string, error) {
	t := l.target
	if t.Lab == "" || t.Node != "" {
		return map[string]string{cmp.Or(t.Node, thisNode): t.Socket()}, nil
	}
	all, err := labs.Nodes(t.Root, t.Lab)
	found := map[string]string{}
	for _, n := range all {
		if len(nodes) == 0 || slices.ContainsFunc(nodes, func(name string) bool { return labs.NodeFolder(name) == n }) {
			found[n] = labs.ControlSocket(t.Root, t.Lab, n)
		}
	}
	return found, err
}

// Ask runs the command for each socket.
func (l local) Ask(ctx context.Context, nodes []string, stdin []byte, command ...string) ([]Answer, error) {
	sockets, err := l.sockets(nodes)
	if err != nil {
		return nil, err
	}
	answers := make(chan Answer, len(sockets))
	var group errgroup.Group
	if command[0] == proveCommand {
		group.SetLimit(mostProofs)
	}
	for node, socket := range sockets {
		group.Go(func() error {
			answers <- l.run(ctx, node, socket, stdin, command)
			return nil
		})
	}
	err = group.Wait()
	close(answers)
	var all []Answer
	for a := range answers {
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b Answer) int { return strings.Compare(a.Node, b.Node) })
	return all, err
}

// Trace follows a packet through all nodes of the lab, or the one of the socket.
func (l local) Trace(ctx context.Context, flags ...string) ([]byte, error) {
	command := append([]string{"trace"}, flags...)
	if t := l.target; t.Lab == "" || t.Node != "" {
		command = append(command, "--socket", t.Socket())
	} else {
		command = append(command, "--lab", t.Lab, "--lab-root", t.Root)
	}
	a := l.execute(ctx, nil, command)
	if a.Fault != "" {
		return nil, errors.New(a.Fault)
	}
	return a.Out, nil
}

func (l local) run(ctx context.Context, node, socket string, stdin []byte, command []string) Answer {
	a := l.execute(ctx, stdin, append(slices.Clone(command), "--socket", socket))
	a.Node = node
	return a
}

// execute runs a command of felixctl in this process.
func (l local) execute(ctx context.Context, stdin []byte, command []string) (a Answer) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	root := &cobra.Command{SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(l.commands()...)
	page := &cobra.Command{Use: CommandName}
	page.AddCommand(dataCommand())
	root.AddCommand(page)
	var out bytes.Buffer
	root.SetArgs(command)
	root.SetIn(bytes.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(io.Discard)
	// A command that has found something denied, or different, has an error and an answer.
	if err := root.ExecuteContext(ctx); err != nil && out.Len() == 0 {
		if a.Fault = err.Error(); errors.Is(ctx.Err(), context.DeadlineExceeded) {
			a.Fault = fmt.Sprintf("no answer within %s", l.timeout)
		}
	}
	a.Out = out.Bytes()
	return a
}

// decode reads the JSON of an answer.
func (a Answer) decode(into any) error {
	if a.Fault != "" {
		return errors.New(a.Fault)
	}
	if err := json.Unmarshal(a.Out, into); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	return nil
}
