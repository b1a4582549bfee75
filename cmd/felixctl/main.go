// Command felixctl is the operator's tool: status and backend ask and change the
// agent of this node; dump, diff, prove and trace show its rules, sets and flows. For lab and
// bench it runs felixlab. On other systems than Linux it has the commands for a cluster
// (--node, --all-nodes) and those that read files.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/cmd/felixctl/cluster"
	"github.com/felixlike/felixlike/cmd/felixctl/migrate"
	"github.com/felixlike/felixlike/cmd/felixctl/policytest"
	"github.com/felixlike/felixlike/cmd/felixctl/trafficprobe"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/felixlike/version"
	"github.com/felixlike/felixlike/internal/manpages"
	"github.com/felixlike/felixlike/internal/nearest"
	"github.com/felixlike/felixlike/internal/printable"
)

// Exit codes besides 0.
const (
	exitNotAsExpected = 1
	exitFailure       = 2
	// exitInBetween: trace found that policies and kernel disagree, or prove could not compare all.
	exitInBetween = 3
)

func main() {
	lab, command := cluster.LabOf(os.Args)
	if lab != "" || cluster.Wanted(os.Args) {
		streams := cluster.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
		run := func() (int, error) { return cluster.Run(context.Background(), os.Args[1:], streams) }
		if lab != "" {
			run = func() (int, error) { return cluster.RunLab(context.Background(), lab, command, streams) }
		}
		code, err := run()
		if err != nil {
			fmt.Fprintln(os.Stderr, "felixctl:", printable.Lines(err.Error()))
		}
		os.Exit(code)
	}
	if err := becomeFelixlab(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "felixctl:", printable.Lines(err.Error()))
		os.Exit(exitFailure)
	}
	err := rootCommand().ExecuteContext(context.Background())
	switch {
	case err == nil:
	case errors.Is(err, report.ErrFaults), notAsExpected(err):
		os.Exit(exitNotAsExpected) // the text is printed
	case inBetween(err):
		fmt.Fprintln(os.Stderr, "felixctl:", printable.Lines(err.Error()))
		os.Exit(exitInBetween)
	default:
		fmt.Fprintln(os.Stderr, "felixctl:", printable.Lines(err.Error()))
		os.Exit(exitFailure)
	}
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "felixctl",
		Short: "Operate and examine felixlike",
		Long: `Operate and examine felixlike.

status, backend, dump, snapshot, diff, prove and trace talk to the agent of this node;
lab and bench run the program felixlab; they need no cluster, only root on a Linux
machine.

Where kubectl reaches a cluster, "felixctl --node NODE COMMAND" and "kubectl felixlike --node
NODE COMMAND" run a command in the agent's pod on a node; without --node, "kubectl felixlike
status" and others answer for all nodes. "kubectl felixlike --help" lists them.

Exit codes of all commands: 0 as expected; 1 something is not as expected,
or degraded; 2 wrong usage, or something could not be done; 3 (trace only) the policies
and the programmed state disagree.`,
		Example: `  felixctl status
  felixctl --all-nodes status
  felixctl trace --from shop/web --to shop/db --port 5432/tcp
  felixctl lab demo`,
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(nearest.FlagError)
	root.AddCommand(nodeCommands()...)
	root.AddCommand(cluster.StageCommands()...)
	root.AddCommand(cluster.NetNamespaceCommand(), migrate.Command(), policytest.Command(), trafficprobe.Command(), manpages.Command())
	return root
}
