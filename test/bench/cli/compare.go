package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/test/bench/compare"
)

// ErrChanged is the error of `felixctl bench compare` for changes beyond noise, after
// they are printed.
var ErrChanged = errors.New("figures have changed beyond noise")

func compareCommand() *cobra.Command {
	var output string
	var threshold float64
	var all bool
	c := &cobra.Command{
		Use:   "compare OLD.json NEW.json",
		Short: "Show the changes between two reports beyond noise",
		Long: `Show the changes between two reports beyond noise, the biggest first.

Times are compared as multiples of the calibration loop, since machines vary. With
four rounds or more in both, a change has to be seen by Mann and Whitney's test
(p < 0.05), as in benchstat; with fewer, even the two nearest rounds have to differ
by the threshold. Parts that measured different things are refused, with the
field that differs; other differences are warnings.

Exit codes: 0 nothing has changed beyond noise; 1 something has; 2 wrong usage,
or nothing could be compared.`,
		Example: "  felixctl bench compare docs/results/benchmarks/w1.json new.json\n" +
			"  felixctl bench compare old.json new.json --threshold 5 --all",
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			before, err := readReport(args[0])
			if err != nil {
				return err
			}
			after, err := readReport(args[1])
			if err != nil {
				return err
			}
			found, err := compare.Compare(before, after, threshold/100)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", args[0], args[1], err)
			}
			w := c.OutOrStdout()
			switch output {
			case "json":
				err = found.JSON(w)
			case "markdown":
				err = found.Markdown(w, all)
			default:
				err = found.Text(w, terminal.StyleFor(w), all)
			}
			if err == nil && found.Changed() {
				err = ErrChanged
			}
			return err
		},
	}
	f := c.Flags()
	f.Float64Var(&threshold, "threshold", 10, "the least change to report, in percent of the lower value")
	f.BoolVar(&all, "all", false, "show unchanged figures, too")
	outputFlag(c, &output)
	terminal.HeadersFlag(c)
	return c
}
