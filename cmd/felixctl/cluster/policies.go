package cluster

import (
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

// policySums is the answer of `policies`.
type policySums struct {
	report.RuleSums
	// NoAnswer are the nodes that are missing in the sums.
	NoAnswer []string `json:"noAnswer,omitempty"`
}

func (t target) policiesCommand() *cobra.Command {
	output := terminal.Text
	unused, staged, namespace, ordered := false, false, "", ""
	c := &cobra.Command{
		Use:   "policies",
		Short: "Show the connections that each policy rule allowed, summed over the nodes",
		Long: `Show the connections that each policy rule allowed, summed over the nodes, and its last hit on
any. NODES is the number of nodes with a pod that the policy applies to. A rule of a
policy that applies to no pod is not listed. The other columns are those of felixctl policies.

--order shows the rules of one pod, or of a node itself (node:NAME), in the order of evaluation. The
node of the pod answers.

--staged shows what the staged policies (annotation felixlike.io/enforce: "no") would have denied.

Exit codes: 0 shown; 2 a node gave no answer: the sums lack it.`,
		Example: `  kubectl felixlike policies --unused
  kubectl felixlike policies --staged
  kubectl felixlike policies --order shop/db
  kubectl felixlike policies -n shop`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if ordered != "" {
				return t.order(c, ordered, output)
			}
			command := []string{"policies", "-o", "json"}
			if namespace != "" {
				command = append(command, "--namespace", namespace)
			}
			if staged {
				return t.printStaged(c, output, append(command, "--staged"))
			}
			replies, err := t.ask(c.Context(), c.ErrOrStderr(), command...)
			if err != nil {
				return err
			}
			var all []control.Hits
			sums := policySums{}
			for _, r := range replies {
				var h control.Hits
				if r.decode(&h) {
					all = append(all, h)
				} else {
					sums.NoAnswer = append(sums.NoAnswer, r.Node)
					fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", r.Node, r.Fault)
				}
			}
			sums.RuleSums = report.SumOfRules(all)
			if unused {
				sums.Rules = slices.DeleteFunc(sums.Rules, func(r report.RuleSum) bool { return !r.Never() })
			}
			if output == terminal.Name {
				err = terminal.PrintNames(c.OutOrStdout(), sums.policies())
			} else {
				err = output.Print(c.OutOrStdout(), sums, func() error { return sums.print(c.OutOrStdout(), len(replies), output) })
			}
			if err != nil {
				return err
			}
			return errNoAnswer(len(sums.NoAnswer), len(replies))
		},
	}
	output.Flag(c, report.Formats()...)
	c.Flags().StringVarP(&namespace, "namespace", "n", "", "only policies of this namespace")
	c.Flags().BoolVar(&unused, "unused", false, "only rules that were hit on no node")
	c.Flags().BoolVar(&staged, "staged", false, "what the staged policies would have denied, by node")
	c.Flags().StringVar(&ordered, "order", "", "namespace/name of a pod, or node:NAME, to show with its rules in the order of evaluation")
	c.MarkFlagsMutuallyExclusive("order", "unused", "staged")
	c.MarkFlagsMutuallyExclusive("order", "namespace")
	return c
}

// policies are the names of the rules' policies, each once.
func (s *policySums) policies() []string {
	var names []string
	for _, r := range s.Rules {
		names = append(names, r.Policy)
	}
	return slices.Compact(names) // they are sorted
}

func (s *policySums) print(w io.Writer, nodes int, output terminal.Output) error {
	table := terminal.NewTable(output.Style(w), "POLICY", "RULE", "NODES", "CONNECTIONS", "PACKETS", "LAST HIT")
	for _, r := range s.Rules {
		packets, last := "-", "never hit"
		if r.Packets != nil {
			packets = fmt.Sprint(*r.Packets)
		}
		switch {
		case r.Uncounted:
			last = "not counted on all nodes"
		case r.Never():
		case r.Last.IsZero():
			last = "before " + s.Since.Format(time.TimeOnly)
		default:
			last = s.At.Sub(r.Last).Round(time.Second).String() + " ago"
		}
		table.Row(r.Policy, model.TitledRule(r.Rule, r.RuleName), r.Nodes, r.Connections, packets, last)
	}
	if len(s.Rules) > 0 {
		if _, err := fmt.Fprintln(w, table); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%d rules on %d nodes\n", len(s.Rules), nodes-len(s.NoAnswer))
	return err
}

// order has the node of a pod, or a node, print the order of its rules.
func (t target) order(c *cobra.Command, end string, output terminal.Output) error {
	if len(t.nodes) > 1 {
		return fmt.Errorf("--order: the node of %s answers: leave out --node", end)
	}
	node, err := t.nodeOf(c.Context(), end)
	if err != nil {
		return fmt.Errorf("--order: %w", err)
	}
	t.nodes = []string{node}
	command := []string{"policies", "--order", end, "-o", string(output)}
	if terminal.NoHeaders(c.OutOrStdout()) {
		command = append(command, "--no-headers")
	}
	code, err := t.passOn(c.Context(), command, Streams{In: strings.NewReader(""), Out: &cleaned{to: c.OutOrStdout()}, Err: &cleaned{to: c.ErrOrStderr()}})
	if err == nil && code != 0 {
		err = exited(code)
	}
	return err
}
