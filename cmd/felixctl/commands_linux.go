package main

import (
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/cmd/felixctl/ctl"
	dumpcli "github.com/felixlike/felixlike/cmd/felixctl/dump/cli"
	tracecli "github.com/felixlike/felixlike/cmd/felixctl/trace/cli"
	"github.com/felixlike/felixlike/cmd/felixctl/ui"
)

// nodeCommands are the commands that need a node: an agent, or the rules of a kernel.
func nodeCommands() []*cobra.Command {
	return slices.Concat(labCommands(), []*cobra.Command{ui.LocalCommand(asked, findFelixlab)}, asked())
}

// asked are the commands that the pages of felixctl ui run, among others.
func asked() []*cobra.Command {
	return slices.Concat(ctl.Commands(), []*cobra.Command{tracecli.Command()}, dumpcli.Commands())
}

// notAsExpected reports whether an error has exit code 1; its text is printed.
func notAsExpected(err error) bool {
	return errors.Is(err, tracecli.ErrDenied) || errors.Is(err, dumpcli.ErrDifferent) || errors.Is(err, ctl.ErrDenied) || errors.Is(err, ctl.ErrPasses)
}

// inBetween reports whether policies and programmed state disagree, or a proof is one in part.
func inBetween(err error) bool {
	return errors.Is(err, tracecli.ErrDisagreement) || errors.Is(err, dumpcli.ErrPartly)
}

// becomeFelixlab runs felixlab in the place of this process if the arguments are for it.
func becomeFelixlab(args []string) error {
	if !forFelixlab(args) {
		return nil
	}
	return runFelixlab(append([]string{"felixctl"}, args...))
}
