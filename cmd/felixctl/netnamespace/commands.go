package netnamespace

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/felixlike/tenancy/change"
)

// CommandName is the name of the command.
const CommandName = "netnamespace"

// Command returns felixctl netnamespace.
func Command(a Access) *cobra.Command {
	c := &cobra.Command{
		Use:     CommandName,
		Aliases: []string{"netnamespaces"},
		Short:   "List the numbers of namespaces; join namespaces, isolate them, make them global",
		Long: `List the numbers of namespaces; join namespaces, isolate them, and make them global, for a cluster
whose agents have isolation: namespaces.

The commands write NetNamespaces (network.openshift.io/v1) by kubectl, with your rights, and the
agents follow within a second. Several such commands at the same time, and "oc adm pod-network"
beside them, join no namespaces but those that they name.`,
		Example: `  felixctl netnamespace list
  felixctl netnamespace join shop-test shop-stage --to shop
  kubectl felixlike netnamespace list`,
		Args: cobra.NoArgs,
	}
	c.AddCommand(listCommand(a), joinCommand(a), isolateCommand(a), globalCommand(a))
	return c
}

// needs is the part of the help of commands that change something.
const needs = `
It needs the rights to get namespaces, to get, list, create and update netnamespaces, and to get,
create and update the Lease felixlike-netnamespace-numbers in the agents' namespace, which has the
last number that was given out. The component deploy/components/isolation has the role
felixlike-isolation-editor with them.`

const looks = `
Before, it asks the agents which established connections the change denies, which needs the rights
to list nodes and pods and to create pods/exec, and prints them. They end only if the agents have
existingConnections: revalidate. An agent that gives no answer is named, and the change is made.
--dry-run asks and changes nothing; --connections=false changes and does not ask.

Exit codes: 0 done; 2 the command failed, in part if it says so. A change that is there already is done.`

// changing are the flags of commands that may deny something.
type changing struct{ dryRun, connections bool }

func (f *changing) flags(c *cobra.Command) {
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "print the connections that the change denies, and change nothing")
	c.Flags().BoolVar(&f.connections, "connections", true, "ask the agents for the connections that the change denies")
}

func joinCommand(a Access) *cobra.Command {
	var f changing
	to := ""
	c := &cobra.Command{
		Use:   "join NAMESPACE... --to NAMESPACE",
		Short: "Join namespaces to another one: they reach each other",
		Long: `Join namespaces to another one: each takes its number, so that they reach each other and all
namespaces that have joined it. A namespace is in one such group: it leaves the one that it is in.
A global namespace cannot be joined, because the others would become global too.
` + needs + "\n" + looks,
		Example: `  felixctl netnamespace join shop-test shop-stage --to shop
  felixctl netnamespace join shop-test --to shop --dry-run`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: complete(a),
		RunE: func(c *cobra.Command, names []string) error {
			return run(c, a, names, f, func(ctx context.Context, k kubectl) ([]byte, []string, error) {
				return joined(ctx, k, names, to)
			}, func(ctx context.Context, w change.Changer, name string) (change.Change, string, error) {
				done, err := w.Join(ctx, name, to)
				return done, "joined to " + to, err
			})
		},
	}
	f.flags(c)
	c.Flags().StringVar(&to, "to", "", "the namespace that the others join")
	_ = c.MarkFlagRequired("to")
	_ = c.RegisterFlagCompletionFunc("to", complete(a))
	return c
}

func isolateCommand(a Access) *cobra.Command {
	var f changing
	c := &cobra.Command{
		Use:   "isolate NAMESPACE...",
		Short: "Isolate namespaces from all others",
		Long: `Isolate namespaces from all others that are not global, also from each other: a namespace that is
joined or global gets a new number. Namespaces that were joined to it stay joined without it. A
namespace without a NetNamespace is isolated already.
` + needs + "\n" + looks,
		Example: `  felixctl netnamespace isolate shop-test
  felixctl netnamespace isolate shop-test --dry-run`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: complete(a),
		RunE: func(c *cobra.Command, names []string) error {
			return run(c, a, names, f, func(ctx context.Context, k kubectl) ([]byte, []string, error) {
				all, err := deleted(ctx, k, names)
				return nil, all, err
			}, func(ctx context.Context, w change.Changer, name string) (change.Change, string, error) {
				done, err := w.Isolate(ctx, name)
				return done, "isolated", err
			})
		},
	}
	f.flags(c)
	return c
}

func globalCommand(a Access) *cobra.Command {
	return &cobra.Command{
		Use:   "global NAMESPACE...",
		Short: "Make namespaces global: all namespaces reach them, and they reach all",
		Long: `Make namespaces global: all namespaces reach them, and they reach all. Namespaces that were joined to
one stay joined without it.
` + needs + `

Exit codes: 0 done; 2 the command failed, in part if it says so. A change that is there already is done.`,
		Example:           "  felixctl netnamespace global kube-system monitoring",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: complete(a),
		RunE: func(c *cobra.Command, names []string) error {
			return run(c, a, names, changing{}, nil, func(ctx context.Context, w change.Changer, name string) (change.Change, string, error) {
				done, err := w.Global(ctx, name)
				return done, "global", err
			})
		},
	}
}

// complete completes names of namespaces.
func complete(a Access) cobra.CompletionFunc {
	return func(c *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
		names, err := kubectl{a}.namespaces(c.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return slices.DeleteFunc(names, func(n string) bool { return slices.Contains(given, n) }), cobra.ShellCompDirectiveNoFileComp
	}
}

// run makes one change of each namespace, after it has printed what the change denies. preview returns the change as
// felixctl preview takes it: manifests, and objects to delete.
func run(
	c *cobra.Command, a Access, names []string, f changing, preview func(context.Context, kubectl) ([]byte, []string, error),
	one func(context.Context, change.Changer, string) (change.Change, string, error),
) error {
	ctx, k := c.Context(), kubectl{a}
	for _, name := range names {
		// Without this a command with several names would stop in the middle.
		if err := exists(ctx, k, name); err != nil {
			return err
		}
	}
	if f.connections || f.dryRun {
		manifest, deleted, err := preview(ctx, k)
		if err != nil {
			return err
		}
		complete, err := denied(ctx, a, c.OutOrStdout(), c.ErrOrStderr(), manifest, deleted)
		switch {
		case err != nil && f.dryRun:
			return err
		case err != nil:
			fmt.Fprintf(c.ErrOrStderr(), "cannot say which connections the change denies: %v\n", err)
		case !complete && f.dryRun:
			return errNoAnswer
		}
	}
	if f.dryRun {
		_, err := fmt.Fprintln(c.OutOrStdout(), "dry run: nothing is changed")
		return err
	}
	w := change.Changer{Cluster: k, Namespace: a.AgentNamespace()}
	for i, name := range names {
		done, what, err := one(ctx, w, name)
		if done.Written || err == nil {
			if err := printChange(c.OutOrStdout(), name, what, done); err != nil {
				return err
			}
		}
		if err != nil {
			if i > 0 || done.Written {
				err = fmt.Errorf("%w (the changes above are made)", err)
			}
			return err
		}
	}
	return nil
}

func exists(ctx context.Context, k kubectl, name string) error {
	found, err := k.Exists(ctx, name)
	if err == nil && !found {
		err = fmt.Errorf("there is no namespace %s", name)
	}
	return err
}

func printChange(w io.Writer, name, what string, done change.Change) error {
	number := "no number"
	if done.After != nil {
		number = fmt.Sprintf("number %d", *done.After)
	}
	already := ""
	if !done.Written {
		already = "already "
	}
	_, err := fmt.Fprintf(w, "namespace %s is %s%s (%s)\n", name, already, what, number)
	return err
}
