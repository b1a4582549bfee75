package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/datastore/manifests"
	"github.com/felixlike/felixlike/internal/files"
)

// previewName is the command whose files are read here.
const previewName = "preview"

func (t target) previewCommand() *cobra.Command {
	return &cobra.Command{
		Use:   previewName + " FLAGS OF PREVIEW",
		Short: "Show the effect of a change of policies before it is made",
		Long: `Show the effect of a change of policies before it is made, as felixctl preview does (kubectl
felixlike --node NODE preview --help). Files are read here. The verdicts are for the whole
cluster. The established connections, the sockets and the programmed state are those of one
node: one with a pod that a changed NetworkPolicy selects, else the first that is ready. It is
named; --node NODE asks another.

Exit codes: 0 every packet keeps its verdict; 1 some would get another; 2 the command failed.`,
		Example: `  kubectl felixlike preview -f policy.yaml
  kubectl felixlike preview --delete networkpolicy/shop/default-deny`,
		DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			if slices.Contains(args, "-h") || slices.Contains(args, "--help") {
				return c.Help()
			}
			command, text, err := withFiles(append([]string{c.Name()}, args...), c.InOrStdin())
			if err != nil {
				return err
			}
			if err := t.chooseNode(c.Context(), text); err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "node %s answers: connections, sockets and programmed state are its own (--node NODE asks another)\n", t.nodes[0])
			code, err := t.passOn(c.Context(), command, Streams{In: bytes.NewReader(text), Out: &cleaned{to: c.OutOrStdout()}, Err: &cleaned{to: c.ErrOrStderr()}})
			if err == nil && code != 0 {
				err = exited(code)
			}
			return err
		},
	}
}

// withFiles returns a command of preview that reads standard input in place of files, and the policies that it reads there,
// with the Services if wanted; nil if nothing. The files' other objects stay here.
func withFiles(command []string, in io.Reader) ([]string, []byte, error) {
	flags := pflag.NewFlagSet(command[0], pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	named, services := flags.StringArrayP("filename", "f", nil, ""), flags.String("services", "", "")
	flags.BoolP("help", "h", false, "")
	if err := flags.Parse(command[1:]); err != nil {
		return nil, nil, err
	}
	all := slices.Clone(*named)
	if *services != "" && !slices.Contains(all, *services) {
		all = append(all, *services)
	}
	var text []byte
	err := files.EachManifest(all, in, func(name string, data []byte) error {
		data, err := manifests.OnlyPolicies(name, data, *services != "")
		if err != nil {
			return err
		}
		if text != nil {
			text = append(text, "\n---\n"...)
		}
		text = append(text, data...)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if !slices.ContainsFunc(all, func(name string) bool { return name != "-" }) {
		return command, text, nil
	}
	command = without(without(without(command, "-f"), "--filename"), "--services")
	if len(*named) > 0 {
		command = append(command, "-f", "-")
	}
	if *services != "" {
		command = append(command, "--services", "-")
	}
	return command, text, nil
}

// chooseNode leaves one node: one with a ready agent and a pod that a NetworkPolicy of the text selects, else the first that is ready.
func (t *target) chooseNode(ctx context.Context, text []byte) error {
	agents, err := t.agents(ctx)
	if err != nil {
		return err
	}
	at := usable(agents)
	if fault := agents[at].Fault; fault != "" {
		return fmt.Errorf("node %s: %s", agents[at].Node, fault)
	}
	t.nodes = []string{agents[at].Node}
	events, _ := manifests.Parse("input", text) // the node names what it does not understand
	for _, e := range events {
		set, is := e.(datastore.NetworkPolicySet)
		if !is {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(&set.Policy.Spec.PodSelector)
		if err != nil {
			continue
		}
		k := t.client
		k.namespace = set.Policy.Namespace
		out, err := k.output(ctx, "get", "pods", "--selector", selector.String(), "--output", "jsonpath={.items[*].spec.nodeName}")
		if err != nil {
			continue // without that right, any node does
		}
		for _, node := range strings.Fields(string(out)) {
			if slices.ContainsFunc(agents, func(a agent) bool { return a.Node == node && a.Fault == "" && a.Ready }) {
				t.nodes = []string{node}
				return nil
			}
		}
	}
	return nil
}
