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

// OutputFlag adds the flag --output.
func OutputFlag(c *cobra.Command, output *string) {
	c.Flags().StringVarP(output, "output", "o", "text", "output format: "+strings.Join(Formats(), ", "))
}

// Formats are those of every report.
func Formats() []string { return []string{"text", "json", "markdown"} }

// CheckOutput refuses a format before minutes are spent.
func CheckOutput(format string) error {
	if slices.Contains(Formats(), format) {
		return nil
	}
	return fmt.Errorf("--output %q: must be one of %s", format, strings.Join(Formats(), ", "))
}

// Report is the result of a run.
type Report interface {
	Text(io.Writer) error
	JSON(io.Writer) error
	Markdown(io.Writer) error
}

// Print writes a report to a terminal.
func Print(w io.Writer, r Report, format string) error {
	switch format {
	case "json":
		return r.JSON(w)
	case "markdown":
		return r.Markdown(w)
	}
	return r.Text(w)
}

// Save writes a report beside its data.
func Save(r Report, out string) error {
	if err := WriteFile(out+".json", r.JSON); err != nil {
		return err
	}
	return WriteFile(out+".md", r.Markdown)
}

// CommandLine is the command line with the bare name of the program.
func CommandLine(args []string) string {
	return strings.Join(append([]string{filepath.Base(args[0])}, args[1:]...), " ")
}

// Finish saves a report, if it is to, and prints it.
func Finish(c *cobra.Command, r Report, output, out string) error {
	if out != "" {
		if err := Save(r, out); err != nil {
			return err
		}
	}
	return Print(c.OutOrStdout(), r, output)
}

// WriteFile writes a file, and makes its directory; if the text cannot be made,
// it leaves existing files unchanged.
func WriteFile(path string, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}
