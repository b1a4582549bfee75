package policytest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/cmd/felixctl/agentflag"
	"github.com/felixlike/felixlike/cmd/felixctl/preview"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/internal/terminal"
)

// Command returns felixctl test.
func Command() *cobra.Command {
	var agent agentflag.Target
	var names []string
	var junit string
	var write bool
	output := terminal.Text
	c := &cobra.Command{
		Use:   "test -f FILE... | test --from-cluster",
		Short: "Test policies against expectations, without a cluster",
		Long: `Test policies against expectations, without a cluster. The files have policies of all
kinds that felixlike reads, and tests: objects of apiVersion ` + APIVersion + ` and
kind ` + Kind + `, with a cluster and expectations about it. Nodes, Namespaces and
Pods of the files are in the clusters of all tests.

An expectation is one of:

  FROM -> TO [PORTS]: allow|deny
  no pod [in ENDS | outside ENDS] reaches TO [PORTS]

FROM and TO are ends, with "or" between them and "except" before ends that are left out:
` + preview.Named + `;
everything; everything else, which no expectation above it is about; any pod [in ENDS |
outside ENDS], which is also each pod that could exist, with any labels, in any namespace.
PORTS are as in 80/tcp,8000-8100/tcp,udp,icmp,8/icmp, or all but these; without, all.

The verdicts are of the policies. A pod's own node always reaches it, and "everything" and
"any pod" are not about that. --from-cluster prints a first test: the kinds of pods that
the agent knows, and what the policies in force allow.

Exit codes: 0 all expectations hold; 1 one does not; 2 the input cannot be used.`,
		Example: `  felixctl test -f policies/ -f tests/
  felixctl test -f policies/ -f tests/ --junit report.xml
  helm template chart/ | felixctl test -f - -f tests/ -o json
  felixctl --node worker-1 test --from-cluster > tests/cluster.yaml`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if write {
				if len(names) > 0 || junit != "" {
					return errors.New("--from-cluster prints a test: give neither -f nor --junit")
				}
				return fromCluster(ctx, c, control.NewClient(agent.Socket()), agent.Socket())
			}
			in, err := Read(names, c.InOrStdin())
			if err != nil {
				return err
			}
			done := terminal.Progress(c.ErrOrStderr(), terminal.Doing("evaluating packets"))
			r, err := Run(ctx, in)
			done()
			if err != nil {
				return err
			}
			if junit != "" {
				f, err := os.Create(junit)
				if err != nil {
					return err
				}
				if err := errors.Join(JUnit(f, r), f.Close()); err != nil {
					return err
				}
			}
			if err := output.Print(c.OutOrStdout(), r, func() error { return Print(c.OutOrStdout(), r) }); err != nil {
				return err
			}
			if !r.Holds() {
				return report.ErrFaults
			}
			return nil
		},
	}
	agent.Flags(c)
	output.Flag(c)
	c.Flags().StringArrayVarP(&names, "filename", "f", nil, "file or folder with policies and tests; - is standard input")
	c.Flags().StringVar(&junit, "junit", "", "also write a report of JUnit to this file")
	c.Flags().BoolVar(&write, "from-cluster", false, "print a first test of the policies in force, as the agent has them")
	return c
}

// fromCluster prints a first test of the agent's objects.
func fromCluster(ctx context.Context, c *cobra.Command, agent *control.Client, socket string) error {
	o, err := agent.Objects(ctx)
	switch {
	case control.NotRunning(err):
		return fmt.Errorf("no agent listens at %s: is it running on this node, or is --socket wrong? (from elsewhere: felixctl --node NODE test --from-cluster)", socket)
	case err != nil:
		return err
	case !o.InSync:
		return errors.New("the agent's first listing of the datastore is not complete")
	}
	text, err := Write(ctx, o)
	if err != nil {
		return err
	}
	_, err = c.OutOrStdout().Write(text)
	return err
}
