package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/cmd/felixctl/migrate"
	"github.com/felixlike/felixlike/cmd/felixctl/netnamespace"
	"github.com/felixlike/felixlike/cmd/felixctl/ui"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/internal/printable"
	"github.com/felixlike/felixlike/internal/terminal"
)

// commands returns the commands that answer for several nodes.
func (t target) commands() *cobra.Command {
	root := &cobra.Command{Use: PluginName, SilenceUsage: true, SilenceErrors: true}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(&cobra.Command{Hidden: true})
	root.AddCommand(t.statusCommand(), t.checkCommand(), traceCommand(t), t.versionCommand(), t.policiesCommand(), t.servicesCommand(), t.dropsCommand(), t.previewCommand(), t.diffCommand(), t.backendCommand(), t.diagsCommand(), netnamespace.Command(t), t.stageCommand(), t.enforceCommand(), ui.Command(pageAccess{t}), migrate.Command())
	return root
}

// NetNamespaceCommand returns felixctl netnamespace for the cluster that kubectl reaches.
func NetNamespaceCommand() *cobra.Command {
	t := &target{}
	c := netnamespace.Command(t)
	c.PersistentPreRunE = func(c *cobra.Command, _ []string) error { return t.locate(c.Context(), c.ErrOrStderr()) }
	return c
}

// AgentNamespace, Ask and Kubectl are the methods of netnamespace.Access.
func (t target) AgentNamespace() string { return t.namespace }

// Ask runs a command with all agents.
func (t target) Ask(ctx context.Context, progress io.Writer, stdin []byte, command ...string) ([]netnamespace.Answer, error) {
	replies, err := t.askWith(ctx, progress, stdin, command...)
	var all []netnamespace.Answer
	for _, r := range replies {
		all = append(all, netnamespace.Answer{Node: r.Node, Fault: r.Fault, Out: r.out})
	}
	return all, err
}

// pageAccess is how felixctl ui reaches the agents.
type pageAccess struct{ target }

// Trace has the nodes of both ends answer together.
func (p pageAccess) Trace(ctx context.Context, flags ...string) ([]byte, error) {
	var out, errs bounded
	code, err := trace(ctx, p.target, append([]string{"trace"}, flags...), Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	switch {
	case err != nil:
		return nil, err
	case out.over || errs.over:
		return nil, errTooLarge
	case !json.Valid(out.all.Bytes()):
		text, _, _ := strings.Cut(errs.all.String(), ended)
		return nil, fmt.Errorf("exit code %d: %s", code, strings.TrimSpace(text))
	}
	return out.all.Bytes(), nil
}

// Ask runs a command with the agents of the nodes, of those of the target if none is named.
func (p pageAccess) Ask(ctx context.Context, nodes []string, stdin []byte, command ...string) ([]ui.Answer, error) {
	t := p.target
	if len(nodes) > 0 {
		t.nodes = nodes
	}
	replies, err := t.askWith(ctx, io.Discard, stdin, command...)
	var all []ui.Answer
	for _, r := range replies {
		all = append(all, ui.Answer{Node: r.Node, Fault: r.Fault, Out: r.out})
	}
	return all, err
}

// finding is one of the findings of felixctl check, with its nodes.
type finding struct {
	Result string   `json:"level"`
	What   string   `json:"what"`
	Detail string   `json:"detail"`
	Nodes  []string `json:"nodes"`
}

func (t target) checkCommand() *cobra.Command {
	output := terminal.Text
	sends, external := false, ""
	c := &cobra.Command{
		Use:   "check",
		Short: "Check all nodes, and show each finding once",
		Long: `Check all nodes, and show each finding that is not "ok" once, with the nodes that have it.
-o json has all findings.

With --traffic it sends packets instead. It makes a namespace with two pods on each node, a
Service and a policy, and tries these paths from each node:

  same node, cross node   to the server pod of the node, and to that of the next one
  Service, NodePort       to the servers' Service: its addresses, and the node's own
  DNS                     the name of that Service; no failure in a cluster without DNS
  outside                 the API server's own address, or --outside ADDRESS:PORT
  denied                  to a port of the servers that the policy denies

The pods run the agents' image, and need no right of the cluster. In the end, also after an
interrupt, the namespace is deleted.

Exit codes: 0 all is well, or noted only; 1 something is missing or degraded, or a path is
not as expected; 2 a node gave no answer, or the pods could not be made or deleted.`,
		Example: `  kubectl felixlike check
  kubectl felixlike check --traffic --outside 192.0.2.1:443
  kubectl felixlike --node worker-1 --node worker-2 check --traffic -o json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if sends {
				return t.checkTraffic(c.Context(), output, external, c.OutOrStdout(), c.ErrOrStderr())
			}
			if external != "" {
				return errors.New("--outside is for --traffic")
			}
			return t.checkAgents(c, output)
		},
	}
	output.Flag(c)
	c.Flags().BoolVar(&sends, "traffic", false, "send packets between test pods on all paths")
	c.Flags().StringVar(&external, "outside", "", "ADDRESS:PORT of a TCP server outside of the cluster, for --traffic (default: the API server)")
	return c
}

// checkAgents has all agents check their nodes, and prints each finding once.
func (t target) checkAgents(c *cobra.Command, output terminal.Output) error {
	replies, err := t.ask(c.Context(), c.ErrOrStderr(), "check", "-o", "json")
	if err != nil {
		return err
	}
	var all []finding
	missing, bad := 0, false
	for _, r := range replies {
		var findings []finding
		if !r.decode(&findings) {
			missing++
			findings = []finding{{Result: "NO ANSWER", What: "agent", Detail: r.Fault}}
		}
		bad = bad || r.code == 1
		for _, f := range findings {
			i := slices.IndexFunc(all, func(o finding) bool { return o.Result == f.Result && o.What == f.What && o.Detail == f.Detail })
			if i < 0 {
				all, i = append(all, f), len(all)
			}
			all[i].Nodes = append(all[i].Nodes, r.Node)
		}
	}
	rank := []string{"NO ANSWER", "MISSING", "note", "ok"}
	slices.SortStableFunc(all, func(a, b finding) int { return slices.Index(rank, a.Result) - slices.Index(rank, b.Result) })
	if err := output.Print(c.OutOrStdout(), all, func() error { return printFindings(c.OutOrStdout(), all, len(replies)) }); err != nil {
		return err
	}
	if missing == 0 && bad {
		return report.ErrFaults
	}
	return errNoAnswer(missing, len(replies))
}

func printFindings(w io.Writer, all []finding, nodes int) error {
	table := terminal.NewTable(terminal.StyleFor(w), "RESULT", "NODES", "WHAT", "DETAIL")
	good := 0
	for _, f := range all {
		if f.Result == "ok" {
			good++
			continue
		}
		table.Row(f.Result, named(f.Nodes, nodes), f.What, f.Detail)
	}
	if good < len(all) {
		if _, err := fmt.Fprintln(w, table); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%d nodes: %d findings are ok, %d are not\n", nodes, good, len(all)-good)
	return err
}

// diffCommand compares two states on each node.
func (t target) diffCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "diff A B [FLAGS OF DIFF]",
		Short: "Show the nodes on which two states differ, and how",
		Long: `Run felixctl diff on all nodes, for example "diff live wanted", and print the output of those
on which the two states differ.

Exit codes: 0 the same on all nodes; 1 different on one; 2 a node gave no answer.`,
		Example:            "  kubectl felixlike diff live wanted",
		DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 || slices.Contains(args, "-h") || slices.Contains(args, "--help") {
				return c.Help()
			}
			replies, err := t.ask(c.Context(), c.ErrOrStderr(), append([]string{"diff"}, args...)...)
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			missing, different := 0, 0
			for _, r := range replies {
				switch {
				case r.Fault != "":
					missing++
					fmt.Fprintf(out, "== %s: NO ANSWER: %s\n", r.Node, r.Fault)
				case r.code == 1:
					different++
					fmt.Fprintf(out, "== %s\n%s\n", r.Node, printable.Lines(strings.TrimRight(string(r.out), "\n")))
				}
			}
			if _, err := fmt.Fprintf(out, "%d nodes: %d differ, %d do not\n", len(replies), different, len(replies)-different-missing); err != nil {
				return err
			}
			if missing == 0 && different > 0 {
				return report.ErrFaults
			}
			return errNoAnswer(missing, len(replies))
		},
	}
}
