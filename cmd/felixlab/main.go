// Command felixlab makes clusters of network namespaces (lab), and measures the cost of the
// backends (bench). It is for developers' machines; the image does not contain it.
// felixctl runs it for its commands lab and bench.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/version"
	"github.com/felixlike/felixlike/internal/manpages"
	"github.com/felixlike/felixlike/internal/nearest"
	"github.com/felixlike/felixlike/internal/printable"
	benchcli "github.com/felixlike/felixlike/test/bench/cli"
	"github.com/felixlike/felixlike/test/lab/cli"
)

func main() {
	if err := ownDescriptors(); err != nil {
		fmt.Fprintln(os.Stderr, printable.Lines(err.Error()))
		os.Exit(cli.ExitFailure)
	}
	root := rootCommand()
	err := root.ExecuteContext(context.Background())
	switch {
	case err == nil:
	case errors.Is(err, cli.ErrBlocked), errors.Is(err, benchcli.ErrChanged):
		os.Exit(cli.ExitDisagreement) // the text is printed
	default:
		fmt.Fprintln(os.Stderr, root.Name()+":", printable.Lines(err.Error()))
		os.Exit(cli.ExitCode(err))
	}
}

// ownDescriptors keeps the descriptors of the caller, but those of the standard streams, from the daemons of a lab, which live longer: a lock or
// a pipe of the caller would stay open with them.
func ownDescriptors() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list the descriptors of the caller: %w", err)
	}
	for _, d := range open {
		if number, err := strconv.Atoi(d.Name()); err == nil && number > 2 {
			unix.CloseOnExec(number)
		}
	}
	return nil
}

func rootCommand() *cobra.Command {
	// Run by felixctl, it has that name, in usage and errors as well.
	name := filepath.Base(os.Args[0])
	root := &cobra.Command{
		Use:   name,
		Short: "Clusters made of network namespaces, and benchmarks in them",
		Long: `Clusters made of network namespaces, and benchmarks in them. Both need no cluster,
only root on a Linux machine. felixctl lab and felixctl bench run this program.

Exit codes of all commands: 0 as expected; 1 something is not as expected,
or degraded; 2 wrong usage, or something could not be done.`,
		Example: `  felixctl lab demo
  felixctl bench run --profile w1 --out w1`,
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(nearest.FlagError)
	root.AddCommand(cli.Commands(), benchcli.Commands(), manpages.Command())
	return root
}
