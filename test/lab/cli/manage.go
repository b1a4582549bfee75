package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/internal/nearest"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/supervisor"
)

// printIgnored names the objects that a lab does not use.
func printIgnored(w io.Writer, objects []string) error {
	for _, o := range objects {
		if _, err := fmt.Fprintf(w, "passed over: %s (a lab does not use this kind)\n", o); err != nil {
			return err
		}
	}
	return nil
}

// entry is a lab in the output of list.
type entry struct {
	Name string `json:"name"`
	// State is up; in use, if a command such as verify runs it or its supervisor does not
	// answer; or left over, if the process that ran it is gone.
	State    string `json:"state"`
	Backends string `json:"backends"`
	Nodes    int    `json:"nodes"`
	Pods     int    `json:"pods"`
	Dir      string `json:"dir"`
}

// listTimeout bounds list's wait for one lab.
const listTimeout = 5 * time.Second

func (o *options) listCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "list",
		Short:   "Show all labs, with the remains of crashed ones",
		Example: "  felixctl lab list",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			names, err := lab.List(o.config.Root)
			if err != nil {
				return err
			}
			found := make([]entry, len(names))
			for i, name := range names {
				found[i] = describe(c.Context(), o.config.Root, name)
			}
			if o.output == terminal.Name {
				return terminal.PrintNames(c.OutOrStdout(), names)
			}
			return o.output.Print(c.OutOrStdout(), found, func() error { return printList(c.OutOrStdout(), found, o.output) })
		},
	}
	o.listFlag(c)
	return c
}

func describe(ctx context.Context, root, name string) entry {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	l := entry{Name: name, State: "left over", Dir: filepath.Join(root, name)}
	if !lab.Alive(root, name) {
		return l
	}
	status, err := supervisor.NewClient(root, name).Status(ctx)
	if err != nil {
		l.State = "in use"
		return l
	}
	l.State, l.Nodes, l.Pods = "up", len(status.Nodes), len(status.Pods)
	var backends []string
	for _, n := range status.Nodes {
		if n.Agent != nil && !slices.Contains(backends, n.Agent.Backend) {
			backends = append(backends, n.Agent.Backend)
		}
	}
	l.Backends = strings.Join(backends, ", ")
	return l
}

func printList(w io.Writer, found []entry, format terminal.Output) error {
	if len(found) == 0 {
		_, err := fmt.Fprintln(w, "no labs (felixctl lab up makes one)")
		return err
	}
	table := terminal.NewTable(format.Style(w), "NAME", "STATE", "BACKENDS", "NODES", "PODS", "FOLDER")
	for _, l := range found {
		table.Row(l.Name, l.State, cmp.Or(l.Backends, "-"), l.Nodes, l.Pods, l.Dir)
	}
	_, err := fmt.Fprintln(w, table)
	return err
}

func (o *options) execCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "exec NODE|NAMESPACE/POD -- COMMAND [ARGUMENT...]",
		Short: "Run a command in the network namespace of a node or pod",
		Long: `Run a command in the network namespace of a node or pod. Files and processes are
those of the machine.

The exit code is that of the command; 2 if it could not be run.`,
		Example: `  felixctl lab exec shop/web -- curl -s --max-time 1 http://10.10.1.2
  felixctl lab exec node1 -- nft list ruleset`,
		Args: cobra.MinimumNArgs(2), ValidArgsFunction: o.firstArgument(true),
		RunE: func(c *cobra.Command, args []string) error {
			name, err := o.namespaceOf(c.Context(), args[0])
			if err != nil {
				return err
			}
			return execIn(name, args[1:])
		},
	}
}

// namespaceOf returns the network namespace of a node or pod of the lab.
func (o *options) namespaceOf(ctx context.Context, end string) (string, error) {
	status, err := o.client().Status(ctx)
	if err != nil {
		return "", err
	}
	for _, n := range status.Nodes {
		if n.Name == end {
			return n.Namespace, nil
		}
	}
	for _, p := range status.Pods {
		if p.Pod == end {
			return p.Namespace, nil
		}
	}
	return "", fmt.Errorf("lab %s has no node or pod %s%s (felixctl lab status shows them)", o.config.Name, end, nearest.Hint(end, endsOf(status, true)))
}

// ends are the nodes of the lab, and its pods if wanted, for completion.
func (o *options) ends(ctx context.Context, pods bool) []string {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	status, err := o.client().Status(ctx)
	if err != nil {
		return nil
	}
	return endsOf(status, pods)
}

func endsOf(s labs.Status, pods bool) []string {
	var all []string
	for _, n := range s.Nodes {
		all = append(all, n.Name)
	}
	for _, p := range s.Pods {
		if pods {
			all = append(all, p.Pod)
		}
	}
	return all
}

// firstArgument completes the first argument by a node, or also by a pod.
func (o *options) firstArgument(pods bool) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return o.ends(c.Context(), pods), cobra.ShellCompDirectiveNoFileComp
	}
}

// execIn becomes the command, in a network namespace.
func execIn(name string, argv []string) error {
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	ns, err := namespace.Open(name)
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := ns.Do(func() error { return unix.Exec(program, argv, os.Environ()) }); err != nil {
		return fmt.Errorf("run %s: %w", program, err)
	}
	return nil
}

func (o *options) logsCommand() *cobra.Command {
	var follow bool
	lines := -1
	c := &cobra.Command{
		Use:               "logs NODE",
		Short:             "Print the log of a node's agent, also after a crash of the lab",
		Example:           "  felixctl lab logs node1 --tail 20 -f",
		ValidArgsFunction: o.firstArgument(false),
		Args:              cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			path := labs.AgentLog(labs.NodeDir(filepath.Join(o.config.Root, o.config.Name), args[0]))
			if _, err := os.Stat(path); err != nil {
				return fmt.Errorf("lab %s has no log of a node %s: %w", o.config.Name, args[0], err)
			}
			first := "+1"
			if lines >= 0 {
				first = strconv.Itoa(lines)
			}
			argv := []string{"tail", "-n", first}
			if follow {
				argv = append(argv, "-F")
			}
			program, err := exec.LookPath(argv[0])
			if err != nil {
				return err
			}
			return unix.Exec(program, append(argv, path), os.Environ())
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "print further lines as they come, until interrupted")
	c.Flags().IntVar(&lines, "tail", lines, "number of last lines to print; all if negative")
	return c
}

func (o *options) restartCommand() *cobra.Command {
	return &cobra.Command{
		Use: "restart NODE", ValidArgsFunction: o.firstArgument(false),
		Short:   "Restart a node's agent, and wait until it has programmed everything",
		Example: "  felixctl lab restart node1",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			start := time.Now()
			stop := terminal.Progress(c.ErrOrStderr(), terminal.Doing("waiting for the agent of "+args[0]))
			err := o.client().Restart(c.Context(), args[0])
			stop()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "agent of %s restarted, all programmed after %s\n", args[0], time.Since(start).Round(time.Millisecond))
			return err
		},
	}
}

func (o *options) downCommand() *cobra.Command {
	var all, ignoreNotFound bool
	c := &cobra.Command{
		Use: "down", Aliases: []string{"delete"},
		Short: "Remove a lab, also after a crash",
		Example: `  felixctl lab down
  felixctl lab down --all
  felixctl lab delete --name tour`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			names := []string{o.config.Name}
			if all {
				var err error
				if names, err = lab.List(o.config.Root); err != nil {
					return err
				}
			}
			for _, name := range names {
				err := lab.Exists(o.config.Root, name)
				if errors.Is(err, lab.ErrNoLab) && (all || ignoreNotFound) {
					continue
				}
				if err != nil {
					return err
				}
				stop := terminal.Progress(c.ErrOrStderr(), terminal.Doing("removing lab "+name))
				err = lab.Cleanup(o.config.Root, name)
				stop()
				if err != nil {
					return err
				}
				if _, err := fmt.Fprintf(c.OutOrStdout(), "lab %s is down\n", name); err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&all, "all", false, "remove every lab")
	c.Flags().BoolVar(&ignoreNotFound, "ignore-not-found", false, "a lab that is not there is no error")
	return c
}
