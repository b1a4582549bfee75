package clitest

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
)

var update = flag.Bool("update", false, "write the reference of the commands anew")

// Reference compares a page of the documents with the help texts of a program's commands, and with -update writes it.
// The page has the title, the text below it, and the commands that are not hidden.
func Reference(t *testing.T, root *cobra.Command, file, title, text string) {
	t.Helper()
	if root := os.Getenv(labs.RootVariable); root != "" {
		t.Skipf("the page has the default folder of labs, and %s is %s", labs.RootVariable, root)
	}
	var page, list strings.Builder
	var write func(*cobra.Command)
	write = func(c *cobra.Command) {
		c.InitDefaultHelpFlag()
		if c.Runnable() && c != root {
			fmt.Fprintf(&list, "| [%s](#%s) | %s |\n", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"), strings.ReplaceAll(c.Short, "|", `\|`))
			fmt.Fprintf(&page, "\n## %s\n\n```text\n%s\n```\n", c.CommandPath(), strings.TrimSpace(helpOf(c)))
		}
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() && sub.Name() != "help" && sub.Name() != "completion" {
				write(sub)
			}
		}
	}
	write(root)
	want := "# " + title + "\n\n<!-- written by go test -update, from the help texts -->\n\n" + text + "\n\n| command | does |\n|---|---|\n" + list.String() + page.String()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if diff := cmp.Diff(string(have), want); diff != "" || err != nil {
		t.Errorf("%s is out of date (go test -update): %v\n%s", file, err, diff)
	}
}

// helpOf returns the text of a command's help without the flags that all commands have.
func helpOf(c *cobra.Command) string {
	var b strings.Builder
	if c.Long != "" {
		b.WriteString(c.Long)
	} else {
		b.WriteString(c.Short)
	}
	fmt.Fprintf(&b, "\n\n%s\n", c.UseLine())
	if c.Example != "" {
		fmt.Fprintf(&b, "\n%s\n", strings.TrimRight(c.Example, "\n"))
	}
	if flags := strings.TrimRight(c.NonInheritedFlags().FlagUsages(), "\n"); flags != "" {
		fmt.Fprintf(&b, "\n%s\n", flags)
	}
	return b.String()
}
