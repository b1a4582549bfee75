// Command felixctl is the operator's tool. So far it has two groups of
// commands: lab, clusters made of network namespaces, and bench, what the
// backends cost.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	benchcli "github.com/felixlike/felixlike/bench/cli"
	"github.com/felixlike/felixlike/ctl"
	"github.com/felixlike/felixlike/felixlike/version"
	"github.com/felixlike/felixlike/lab/cli"
)

func main() {
	root := &cobra.Command{
		Use:           "felixctl",
		Short:         "Operate and examine felixlike",
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(cli.Commands(), benchcli.Commands())
	root.AddCommand(ctl.Commands()...)
	err := root.ExecuteContext(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "felixctl:", err)
	}
	os.Exit(cli.ExitCode(err))
}
