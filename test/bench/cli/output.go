package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// outputFlag adds the flag --output.
func outputFlag(c *cobra.Command, output *string) {
	c.Flags().StringVarP(output, "output", "o", "text", "output format: "+strings.Join(formats(), ", "))
}

// formats are those of every report.
func formats() []string { return []string{"text", "json", "markdown"} }

// checkOutput refuses a format before minutes are spent.
func checkOutput(format string) error {
	if slices.Contains(formats(), format) {
		return nil
	}
	return fmt.Errorf("--output %q: must be one of %s", format, strings.Join(formats(), ", "))
}

// savable is the result of a run.
type savable interface {
	Text(io.Writer) error
	JSON(io.Writer) error
	Markdown(io.Writer) error
}

// printReport writes a report to a terminal.
func printReport(w io.Writer, r savable, format string) error {
	switch format {
	case "json":
		return r.JSON(w)
	case "markdown":
		return r.Markdown(w)
	}
	return r.Text(w)
}

// save writes a report beside its data.
func save(r savable, out string) error {
	if err := writeFile(out+".json", r.JSON); err != nil {
		return err
	}
	return writeFile(out+".md", r.Markdown)
}

// commandLine is the command line with the bare name of the program.
func commandLine(args []string) string {
	return strings.Join(append([]string{filepath.Base(args[0])}, args[1:]...), " ")
}

// finish saves a report, if it is to, and prints it.
func finish(c *cobra.Command, r savable, output, out string) error {
	if out != "" {
		if err := save(r, out); err != nil {
			return err
		}
	}
	return printReport(c.OutOrStdout(), r, output)
}

// writeFile writes a file, and makes its directory; if the text cannot be made,
// it leaves existing files unchanged.
func writeFile(path string, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}
