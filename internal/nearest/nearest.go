// Package nearest finds the word that somebody has probably meant, for errors about
// unknown settings, values, flags and commands. It is pure.
package nearest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// mostEdits bounds the insertions, removals, replacements and exchanges of neighbours
// between a word and the one that is meant.
const mostEdits = 2

// Of returns the known word with the fewest edits from a word, the first of several, or ""
// if none is near. Upper and lower case are the same.
func Of(word string, known []string) string {
	best, fewest := "", mostEdits+1
	for _, k := range known {
		// Of a short word, two edits leave nothing.
		if n := edits(strings.ToLower(word), strings.ToLower(k)); n < fewest && n < max(len(word), len(k))-1 {
			best, fewest = k, n
		}
	}
	return best
}

// Hint returns `, did you mean "x"?`, or "" if no known word is near.
func Hint(word string, known []string) string {
	if best := Of(word, known); best != "" {
		return fmt.Sprintf(", did you mean %q?", best)
	}
	return ""
}

// edits is the distance of two words by Damerau and Levenshtein (optimal string alignment).
func edits(a, b string) int {
	before, last := []int(nil), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := last[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			row[j] = min(last[j]+1, row[j-1]+1, replaced)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// FlagError adds a hint to an error about an unknown flag, for cobra's SetFlagErrorFunc.
func FlagError(c *cobra.Command, err error) error {
	unknown := new(pflag.NotExistError)
	if !errors.As(err, &unknown) || len(unknown.GetSpecifiedName()) < 2 {
		return err
	}
	var known []string
	note := func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	}
	c.LocalFlags().VisitAll(note)
	c.InheritedFlags().VisitAll(note)
	hint := Of(unknown.GetSpecifiedName(), known)
	if hint == "" {
		return fmt.Errorf("%w (see %s --help)", err, c.CommandPath())
	}
	return fmt.Errorf("%w, did you mean --%s?", err, hint)
}

// Command refuses arguments, for the Args of a command that only has other commands. Cobra
// would take an unknown command for a request for help.
func Command(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var known []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			known = append(known, sub.Name())
		}
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], c.CommandPath(), Hint(args[0], known))
}
