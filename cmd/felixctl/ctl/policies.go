package ctl

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/model"
)

func policiesCommand() *cobra.Command {
	var t target
	var unused, staged bool
	var ordered, namespace string
	c := &cobra.Command{
		Use:   "policies",
		Short: "Show the connections that each policy rule allowed on this node, and its last hit",
		Long: `Show the connections that each policy rule allowed on this node, and its last hit.

CONNECTIONS is the number of connections that the rule allowed on this node since
it was programmed. A rule is counted on the node that judges it: for egress the node of
the source, for ingress that of the destination. PACKETS are all packets, if the backend
counts them: the netfilter backends neither judge nor count packets of established
connections.

With nftables.layout maps, most rules are not counted.

LAST HIT is known from the first use of this command: from then on the agent reads
the counters every 30 seconds, until it restarts.

Rules of policies for the node itself are counted in its table; APPLIES TO then names
the node.

--order shows the rules of one pod of this node, or of the node itself (node:NAME), in the order of evaluation:
tier, priority, policy, rule, action, peers and ports. The first rule of a
tier that matches decides, and pass goes on to the next tier. NetworkPolicies have no
order: the pod is isolated, and each of their rules allows.

--staged shows the staged policies (annotation felixlike.io/enforce: "no") and the new connections that they would have
denied since they were staged or the agent started: by pod, with the first one.`,
		Example: `  felixctl policies
  felixctl policies --unused
  felixctl policies --staged
  felixctl policies --order shop/db -o json
  felixctl policies --order node:node1`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if ordered != "" {
				return t.printOrder(c, ordered)
			}
			return t.call(c.Context(), func(ctx context.Context, agent *control.Client) error {
				if err := namespaceExists(ctx, agent, namespace); err != nil {
					return err
				}
				if staged {
					return t.printStaged(c, agent, namespace)
				}
				hits, err := agent.Hits(ctx)
				if err != nil {
					return err
				}
				if unused {
					hits.Rules = neverHit(hits.Rules)
				}
				if namespace != "" {
					hits.Rules = slices.DeleteFunc(hits.Rules, func(h control.RuleHits) bool { return !inNamespace(h.Policy, namespace) })
				}
				if t.output == terminal.Name {
					return terminal.PrintNames(c.OutOrStdout(), policyNames(hits.Rules))
				}
				return t.output.Print(c.OutOrStdout(), hits, func() error { return printHits(c.OutOrStdout(), hits, t.output) })
			})
		},
	}
	t.AllNodes = true
	t.flags(c, 30*time.Second)
	t.output.Flag(c, report.Formats()...)
	c.Flags().StringVarP(&namespace, "namespace", "n", "", "only policies of this namespace")
	t.NamespaceFlag(c, "namespace")
	c.Flags().BoolVar(&unused, "unused", false, "only rules that were never hit")
	c.Flags().BoolVar(&staged, "staged", false, "what the staged policies would have denied")
	c.Flags().StringVar(&ordered, "order", "", "namespace/name of a pod, or node:NAME, to show with its rules in the order of evaluation")
	t.PodFlag(c, "order")
	c.MarkFlagsMutuallyExclusive("order", "unused", "staged")
	return c
}

// printOrder asks the agent for its model, and prints the order of the rules of a pod, or of its node.
func (t *target) printOrder(c *cobra.Command, end string) error {
	node, isNode := strings.CutPrefix(end, "node:")
	id, err := control.ParsePod(end)
	if err != nil && !isNode {
		return fmt.Errorf("--order %q: must be namespace/name, or node:NAME", end)
	}
	return t.call(c.Context(), func(ctx context.Context, agent *control.Client) error {
		m, err := agent.Model(ctx)
		if err == nil {
			err = m.Judges()
		}
		if err != nil {
			return err
		}
		o, err := orderOf(&m, id)
		if isNode {
			o, err = orderOfNode(&m, node)
		}
		if err != nil {
			return err
		}
		return t.output.Print(c.OutOrStdout(), o, func() error { return printOrder(c.OutOrStdout(), o) })
	})
}

// inNamespace reports whether a policy, as model.PolicyID.String has it, is of a namespace.
func inNamespace(policy, namespace string) bool {
	kind, name, _ := strings.Cut(policy, "/")
	of, _, namespaced := strings.Cut(name, "/")
	return of == namespace && (namespaced || kind+"/"+of == model.IsolationOf(of).String())
}

// policyNames are the policies of rules, each once.
func policyNames(rules []control.RuleHits) []string {
	var names []string
	for _, h := range rules {
		names = append(names, h.Policy)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func neverHit(all []control.RuleHits) []control.RuleHits {
	unused := []control.RuleHits{}
	for _, h := range all {
		if h.Never() {
			unused = append(unused, h)
		}
	}
	return unused
}

func printHits(w io.Writer, hits control.Hits, format terminal.Output) error {
	if len(hits.Rules) == 0 {
		_, err := fmt.Fprintf(w, "%s (%s): no such rule of a policy that applies to a pod here or to the node\n", hits.Node, hits.Backend)
		return err
	}
	head := []string{"POLICY", "RULE", "CONNECTIONS", "PACKETS", "LAST HIT"}
	node := slices.ContainsFunc(hits.Rules, func(h control.RuleHits) bool { return h.Node })
	if node {
		head = append(head, "APPLIES TO")
	}
	table := terminal.NewTable(format.Style(w), head...)
	for _, h := range hits.Rules {
		packets, connections := "-", fmt.Sprint(h.Connections)
		if h.Uncounted {
			connections = "-"
		}
		if h.Packets != nil {
			packets = fmt.Sprint(*h.Packets)
		}
		row := []any{h.Policy, model.TitledRule(h.Rule, h.RuleName), connections, packets, lastHit(h, hits)}
		switch {
		case h.Node:
			row = append(row, "node "+hits.Node)
		case node:
			row = append(row, "pods")
		}
		table.Row(row...)
	}
	note := ""
	if slices.ContainsFunc(hits.Rules, func(h control.RuleHits) bool { return h.Uncounted }) {
		note = "not counted: the rule is in grants (nftables.layout), which have no counters\n"
	}
	_, err := fmt.Fprintf(w, "%s (%s)\n%s\n%s", hits.Node, hits.Backend, table, note)
	return err
}

func lastHit(h control.RuleHits, hits control.Hits) string {
	switch {
	case h.Uncounted:
		return "not counted"
	case h.Never():
		return "never hit"
	case h.Last.IsZero():
		return "before " + hits.Since.Format(time.TimeOnly)
	}
	return fmt.Sprintf("%s ago", hits.At.Sub(h.Last).Round(time.Second))
}
