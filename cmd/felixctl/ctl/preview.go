package ctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	dumpcli "github.com/felixlike/felixlike/cmd/felixctl/dump/cli"
	"github.com/felixlike/felixlike/cmd/felixctl/preview"
	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/datastore/manifests"
	"github.com/felixlike/felixlike/internal/files"
	"github.com/felixlike/felixlike/internal/servicelist"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/model"
)

func previewCommand() *cobra.Command {
	var t target
	var files, deleted []string
	var listed string
	var explain bool
	c := &cobra.Command{
		Use:   "preview -f FILE... [--delete KIND/[NAMESPACE/]NAME...]",
		Short: "Show the effect of a change of policies before it is made",
		Long: `Show the effect of a change of NetworkPolicies, ClusterNetworkPolicies, Antrea's
tiers, groups and policies, NetNamespaces and EgressNetworkPolicies before it is made. It shows the packets that would get another verdict, by every port and
between all pods, nodes and addresses of the cluster. It shows the established
connections of this node that the policies would no longer allow to begin, and the
rules, sets and flows that this node would add and remove. It changes and enforces
nothing.

The policies of the files are taken as created, or as replacing those of their
names; all others stay as the agent has them. Other kinds of objects in the files
are ignored.

Pods that no policy can distinguish are shown together. "anyone outside" are the
addresses that neither the cluster nor any rule names.

For policies that apply to nodes, it shows the packets to and from the nodes themselves, the
sockets of this node that close, and its connections that could not begin again, by
process. What only the failsafe ports keep open is shown too. For policies before DNAT, it
shows the NodePorts, LoadBalancer addresses and externalIPs of Services that they
close or open, and for whom: with serviceProxy full of those that the agent serves,
else of those that --services names.

A packet that a new rule allows at one end, and the other end denies as before, is
listed as still denied.

Exit codes: 0 every packet keeps its verdict; 1 some would get another, or only the
failsafe ports keep it, or Services are not judged; 2 the command failed.`,
		Example: `  felixctl preview -f policy.yaml
  felixctl preview -f policies/ --explain
  felixctl preview --delete networkpolicy/shop/default-deny
  felixctl preview --delete clusternetworkpolicy/keep-out
  kubectl get services -A -o yaml | felixctl preview -f node-ports.yaml --services -
  kubectl get -n shop networkpolicy db -o yaml | sed s/5432/5433/ | felixctl preview -f -`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			in := func() io.Reader { return c.InOrStdin() }
			if listed == "-" && slices.Contains(files, "-") { // it has both
				text, err := io.ReadAll(bounded(c.InOrStdin()))
				if err != nil {
					return fmt.Errorf("read standard input: %w", err)
				}
				in = func() io.Reader { return bytes.NewReader(text) }
			}
			change, err := readChange(files, deleted, in(), c.ErrOrStderr())
			if err != nil {
				return err
			}
			if change.Services, err = readServices(listed, in()); err != nil {
				return err
			}
			return t.call(c.Context(), func(ctx context.Context, agent *control.Client) error {
				stop := terminal.Progress(c.ErrOrStderr(), terminal.Doing("judging packets"))
				p, err := compute(ctx, agent, change)
				stop()
				if err != nil {
					return err
				}
				if err := t.output.Print(c.OutOrStdout(), p, func() error { return printPreview(c.OutOrStdout(), p, explain) }); err != nil {
					return err
				}
				if p.Changes() {
					return dumpcli.ErrDifferent
				}
				return nil
			})
		},
	}
	t.flags(c, 2*time.Minute)
	t.output.Flag(c)
	c.Flags().StringArrayVarP(&files, "filename", "f", nil, "file or folder with policies; - is standard input")
	c.Flags().StringArrayVar(&deleted, "delete", nil, "policy to delete in the preview, as outputs name it, such as networkpolicy/shop/db")
	c.Flags().StringVar(&listed, "services", "", "file with the cluster's Services, for policies before DNAT; - is standard input")
	c.Flags().BoolVar(&explain, "explain", false, "explain the change in sentences")
	return c
}

// allObjects returns the agent's objects. Without those of a listing that is not complete, an answer would be wrong.
func allObjects(ctx context.Context, agent *control.Client) (control.Objects, error) {
	all, err := agent.Objects(ctx)
	if err == nil && !all.InSync {
		err = errors.New("the agent's first listing of the datastore is not complete")
	}
	return all, err
}

// compute gets the agent's objects, and computes the effects of the change.
func compute(ctx context.Context, agent *control.Client, change preview.Change) (*preview.Preview, error) {
	m, err := agent.Model(ctx)
	if err != nil {
		return nil, err
	}
	if err := m.Judges(); err != nil {
		return nil, err
	}
	objects, err := allObjects(ctx, agent)
	if err != nil {
		return nil, err
	}
	p, err := preview.Of(ctx, objects, change)
	if err != nil {
		return nil, err
	}
	if change.Services == nil && m.Settings.ServiceProxy {
		all, err := agent.Services(ctx, "")
		if err != nil {
			return nil, err
		}
		change.Services = append([]control.Service{}, all.Services...)
	}
	if err := p.Nodes(ctx, objects, change, &m, agent.Sockets); err != nil {
		return nil, err
	}
	established, err := agent.Connections(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.Connections(objects, change, &m, established); err != nil {
		return nil, err
	}
	return p, p.Program(objects, change, m)
}

func printPreview(w io.Writer, p *preview.Preview, explain bool) error {
	style := terminal.StyleFor(w)
	if err := preview.Print(w, p, explain); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s\n", style.Head(fmt.Sprintf("Changes of the programmed state of %s (%s)", p.Node, p.Backend)))
	if err := dumpcli.PrintStructure(w, p.Programmed); err != nil {
		return err
	}
	for _, warning := range p.Warnings {
		fmt.Fprintf(w, "%s: %s\n", style.Bold("warning"), warning)
	}
	_, err := fmt.Fprintf(w, "\n%s\n", style.Faint("This is a preview: nothing was changed."))
	return err
}

// readChange reads the policies of the files. It returns an error for a policy that cannot be
// understood, because the API server would refuse it too.
func readChange(files, deleted []string, stdin io.Reader, notes io.Writer) (preview.Change, error) {
	var change preview.Change
	if len(files)+len(deleted) == 0 {
		return change, errors.New("no change given: use -f FILE, or --delete KIND/[NAMESPACE/]NAME")
	}
	for _, name := range deleted {
		policy, err := preview.ParsePolicy(name)
		if err != nil {
			return change, fmt.Errorf("--delete %w", err)
		}
		change.Delete = append(change.Delete, policy)
	}
	for _, file := range files {
		events, problems, err := readManifests(file, stdin)
		if err != nil {
			return change, err
		}
		var errs []error
		for _, p := range problems {
			if preview.IsPolicyKind(p.Object.Kind) {
				errs = append(errs, p)
			} else {
				fmt.Fprintln(notes, "note:", p.Error())
			}
		}
		if err := errors.Join(errs...); err != nil {
			return change, err
		}
		for _, e := range events {
			switch set := e.(type) {
			case datastore.NetworkPolicySet:
				change.Set = append(change.Set, set.Policy)
			case datastore.ClusterNetworkPolicySet:
				change.SetCluster = append(change.SetCluster, set.Policy)
			case datastore.AntreaSet:
				if antrea.EgressOf(set.Object) != nil {
					fmt.Fprintf(notes, "note: %s: a preview knows no Egresses: neither the source address of packets to the outside, nor which of them are dropped without it\n", set.Object.ID().Ref())
					continue
				}
				change.SetAntrea = append(change.SetAntrea, set.Object)
			}
		}
	}
	if change.Empty() {
		return change, errors.New("the input has no policy")
	}
	return change, nil
}

// readServices reads the Services of the flag --services. It returns nil if the flag was not given.
func readServices(path string, stdin io.Reader) ([]control.Service, error) {
	all, err := servicelist.Read(path, stdin)
	if err != nil || path == "" {
		return nil, err
	}
	out := []control.Service{}
	for _, s := range all {
		out = append(out, preview.ServiceOf(s))
	}
	return out, nil
}

// maxInput bounds manifests that come from standard input, as those in files are.
const maxInput = 64 << 20

func bounded(in io.Reader) io.Reader { return files.Bounded(in, maxInput) }

func readManifests(file string, stdin io.Reader) ([]datastore.Event, []model.Problem, error) {
	if file != "-" {
		return manifests.ParseFile(file)
	}
	data, err := io.ReadAll(bounded(stdin))
	if err != nil {
		return nil, nil, fmt.Errorf("read standard input: %w", err)
	}
	events, problems := manifests.Parse("standard input", data)
	return events, problems, nil
}
