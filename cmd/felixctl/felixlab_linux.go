package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// felixlab is the program that has the commands lab and bench.
const felixlab = "felixlab"

// forFelixlab reports whether felixlab has to answer these arguments: those of a command of
// lab or bench, help on one, or completion of one.
func forFelixlab(args []string) bool {
	least := 1
	if len(args) > 0 {
		switch args[0] {
		case "help":
			args, least = args[1:], 1
		case cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd:
			// The last argument is the word that is to be completed.
			args, least = args[1:], 2
		}
	}
	if len(args) < least {
		return false
	}
	return args[0] == "lab" || args[0] == "bench"
}

// runFelixlab runs felixlab in the place of this process, by the name of this program. It
// returns if it cannot.
func runFelixlab(argv []string) error {
	program, err := findFelixlab()
	if err != nil {
		return err
	}
	if err := unix.Exec(program, argv, os.Environ()); err != nil {
		return fmt.Errorf("run %s: %w", program, err)
	}
	return nil
}

func findFelixlab() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	beside := filepath.Join(filepath.Dir(self), felixlab)
	if program, err := exec.LookPath(beside); err == nil {
		return program, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	program, err := exec.LookPath(felixlab)
	if err != nil {
		return "", fmt.Errorf("%s not found beside %s or in PATH: lab and bench are in a program of their own, which is not in the image (make build makes it)", felixlab, filepath.Base(self))
	}
	return program, nil
}

// labCommands are the commands of felixlab as the list of commands shows them.
func labCommands() []*cobra.Command {
	elsewhere := func(use, short, example string) *cobra.Command {
		return &cobra.Command{
			Use: use, Short: short, Example: example, DisableFlagParsing: true,
			RunE: func(c *cobra.Command, args []string) error {
				return runFelixlab(append(strings.Fields(c.CommandPath()), args...))
			},
		}
	}
	return []*cobra.Command{
		elsewhere("lab", "Clusters made of network namespaces, with real agents and real packets", "  felixctl lab demo"),
		elsewhere("bench", "Measure the cost of the policy backends on this machine", "  felixctl bench packets --rounds 3"),
	}
}
