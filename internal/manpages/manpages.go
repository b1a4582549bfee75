// Package manpages is the command by which felixctl and felixlab write their own manual pages,
// made of their help texts.
package manpages

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Command returns the hidden command `man FOLDER`. The pages have the date of SOURCE_DATE_EPOCH,
// if that is set.
func Command() *cobra.Command {
	return &cobra.Command{
		Use: "man FOLDER", Short: "Write the manual pages of this program into a folder", Hidden: true, Args: cobra.ExactArgs(1),
		Example: "  felixctl man /usr/local/share/man/man1",
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("folder of the manual pages: %w", err)
			}
			root := c.Root()
			root.DisableAutoGenTag = true
			header := &doc.GenManHeader{Title: strings.ToUpper(root.Name()), Section: "1", Source: "felixlike " + root.Version, Manual: "felixlike"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return fmt.Errorf("manual pages: %w", err)
			}
			return nil
		},
	}
}
