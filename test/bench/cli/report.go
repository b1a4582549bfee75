package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/internal/files"
	"github.com/felixlike/felixlike/test/bench"
	"github.com/felixlike/felixlike/test/bench/page"
)

func reportCommand() *cobra.Command {
	var output, out string
	c := &cobra.Command{
		Use:   "report FILE.json",
		Short: "Show the report of an earlier run: text, a page with figures, or the figures alone",
		Long: `Show the report of an earlier run: text, a page with figures, or the figures alone.

The page is one HTML file that needs no network and no script. With --out and a
directory, everything is written there: the page, Markdown, JSON, and each figure
as SVG. With --out and a file, its ending chooses the format, unless
--output does.`,
		Example: "  felixctl bench report w1.json --out w1.html\n" +
			"  felixctl bench report w1.json --out w1/\n" +
			"  felixctl bench report w1.json -o svg --out figures/",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if output == "png" {
				return errors.New("--output png: figures are written as SVG only: use svg")
			}
			if !slices.Contains(reportFormats(), output) {
				return fmt.Errorf("--output %q: must be one of %s", output, strings.Join(reportFormats(), ", "))
			}
			r, err := readReport(args[0])
			if err != nil {
				return err
			}
			if out == "" {
				if output == "svg" {
					return errors.New("--output svg: there is one file a figure: --out has to name a directory")
				}
				return render(c.OutOrStdout(), r, output)
			}
			format := output
			if !c.Flags().Changed("output") {
				format = formatOf(out)
			}
			return writeReport(c.OutOrStdout(), r, format, out)
		},
	}
	f := c.Flags()
	f.StringVarP(&output, "output", "o", "text", "output format: "+strings.Join(reportFormats(), ", "))
	f.StringVar(&out, "out", "", "write to this file, or into this directory, instead of printing")
	return c
}

func reportFormats() []string { return append(formats(), "html", "svg") }

// maxReport bounds a report: a long one has some megabytes.
const maxReport = 256 << 20

func readReport(path string) (*bench.Report, error) {
	data, err := files.Read(path, maxReport)
	if err != nil {
		return nil, err
	}
	r, err := bench.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

func render(w io.Writer, r *bench.Report, format string) error {
	if format == "html" {
		return page.Write(w, r)
	}
	return printReport(w, r, format)
}

// everything is the format of a directory with all others.
const everything = ""

// formatOf returns the format for a file name.
func formatOf(path string) string {
	switch filepath.Ext(path) {
	case ".html":
		return "html"
	case ".md":
		return "markdown"
	case ".json":
		return "json"
	case ".txt":
		return "text"
	}
	return everything
}

// writeReport writes files, and prints their names.
func writeReport(w io.Writer, r *bench.Report, format, out string) error {
	switch format {
	case "svg":
		return writeFigures(w, r, out)
	case everything:
		for _, f := range []string{"report.html", "report.md", "report.json"} {
			if err := writeReport(w, r, formatOf(f), filepath.Join(out, f)); err != nil {
				return err
			}
		}
		return writeFigures(w, r, filepath.Join(out, "figures"))
	}
	if err := writeFile(out, func(b io.Writer) error { return render(b, r, format) }); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "written: %s\n", out)
	return err
}

func writeFigures(w io.Writer, r *bench.Report, dir string) error {
	figures := page.Figures(r)
	for _, f := range figures {
		if err := writeFile(filepath.Join(dir, f.Name+".svg"), f.WriteSVG); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "written: %s (%d figures)\n", filepath.Join(dir, "*.svg"), len(figures))
	return err
}
