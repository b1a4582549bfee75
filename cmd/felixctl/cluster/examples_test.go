package cluster

import (
	"slices"
	"testing"

	"github.com/felixlike/felixlike/test/clitest"
)

// TestExamples: each command has examples, of commands and flags that exist.
func TestExamples(t *testing.T) {
	root := target{}.commands()
	root.Example = help // it is printed instead of the root's own help
	clitest.Examples(t, root, func(words []string) ([]string, bool) {
		if len(words) < 2 || !slices.Equal(words[:2], []string{"kubectl", "felixlike"}) || slices.Contains(words, "COMMAND...") {
			return nil, false
		}
		of, args, err := parse(words[2:])
		if err != nil {
			t.Errorf("%v: %v", words, err)
			return nil, false
		}
		// A command for one node is felixctl's own there.
		return args, len(of.nodes) != 1 || len(args) == 0
	})
}
