// Package clitest checks the help texts of command lines: each command has an example, and the
// examples name commands and flags that exist. It runs no command. It is tested by the
// programs that use it.
package clitest

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Examples fails the test for each command without an example, and for each example of a program with a
// command or a flag that it lacks. A line is an example of the program if start takes it: start
// returns the arguments behind the program's name.
func Examples(t *testing.T, root *cobra.Command, start func(words []string) (args []string, is bool)) {
	t.Helper()
	walk(root, func(c *cobra.Command) {
		if strings.TrimSpace(c.Example) == "" {
			t.Errorf("%s --help has no example", c.CommandPath())
		}
		for line := range strings.Lines(c.Example) {
			words := command(line)
			args, is := start(words)
			if !is {
				continue
			}
			target, rest, err := root.Find(args)
			if err != nil {
				t.Errorf("%s --help, example %q: %v", c.CommandPath(), strings.TrimSpace(line), err)
				continue
			}
			for _, flag := range unknownFlags(target, rest) {
				t.Errorf("%s --help, example %q: %s has no flag %s", c.CommandPath(), strings.TrimSpace(line), target.CommandPath(), flag)
			}
		}
	})
}

// Program returns a start for Examples: lines that begin with one of the names.
func Program(names ...string) func([]string) ([]string, bool) {
	return func(words []string) ([]string, bool) {
		if len(words) == 0 || !slices.Contains(names, words[0]) {
			return nil, false
		}
		return words[1:], true
	}
}

// walk visits the commands that help lists.
func walk(c *cobra.Command, visit func(*cobra.Command)) {
	if c.Hidden {
		return
	}
	visit(c)
	for _, sub := range c.Commands() {
		walk(sub, visit)
	}
}

// command returns the words of a line of the shell up to a pipe, a redirection or a comment.
func command(line string) []string {
	words := strings.Fields(line)
	if i := slices.IndexFunc(words, func(w string) bool { return strings.ContainsAny(w[:1], "|<>#;&") }); i >= 0 {
		words = words[:i]
	}
	return words
}

// unknownFlags returns the flags among the arguments that the command lacks. What follows "--" is
// for another program.
func unknownFlags(c *cobra.Command, args []string) []string {
	if c.DisableFlagParsing {
		return nil
	}
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	var unknown []string
	for _, arg := range args {
		if arg == "--" {
			break
		}
		name, _, _ := strings.Cut(arg, "=")
		var found *pflag.Flag
		switch {
		case strings.HasPrefix(name, "--"):
			found = c.Flag(name[2:])
		case len(name) > 1 && name[0] == '-':
			if found = c.Flags().ShorthandLookup(name[1:2]); found == nil {
				found = c.InheritedFlags().ShorthandLookup(name[1:2])
			}
		default:
			continue
		}
		if found == nil {
			unknown = append(unknown, name)
		}
	}
	return unknown
}
