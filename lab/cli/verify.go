package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/lab"
	"github.com/felixlike/felixlike/lab/verify"
	"github.com/felixlike/felixlike/test/truthtable"
)

// maxShown bounds the table of disagreements.
const maxShown = 50

func (o *options) verifyCommand() *cobra.Command {
	var cases, out string
	c := &cobra.Command{
		Use:   "verify --cases FILE",
		Short: "Judge a backend by a truth table, in a lab of its own",
		Long: `Judge a backend by a truth table, in a lab of its own.

For every step of the table the cluster is brought to the step's state, and
every probe is tried with real packets. Each step gives one line of JSON on
standard output; "got" has a character a probe: 1 through, 0 not through
(refused, or no answer within --timeout), - not tried.

Exit codes: 0 all as expected, 1 some probe was not, 2 anything else.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			steps, err := readCases(cases)
			if err != nil {
				return err
			}
			w := c.OutOrStdout()
			if out != "" {
				file, err := os.Create(out)
				if err != nil {
					return err
				}
				defer file.Close()
				w = io.MultiWriter(w, file)
			}
			return o.verify(c, steps, w)
		},
	}
	o.configFlags(c)
	o.probeFlags(c)
	c.Flags().StringVar(&cases, "cases", "", "truth table (JSON lines); - is standard input")
	c.Flags().StringVar(&out, "out", "", "write the lines to this file too")
	_ = c.MarkFlagRequired("cases") // the flag is there: it was just made
	return c
}

func readCases(path string) ([]truthtable.Step, error) {
	file := os.Stdin
	if path != "-" {
		var err error
		if file, err = os.Open(path); err != nil {
			return nil, err
		}
		defer file.Close()
	}
	steps, err := truthtable.Read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return steps, nil
}

func (o *options) verify(c *cobra.Command, steps []truthtable.Step, w io.Writer) (err error) {
	family, err := o.parseProbe()
	if err != nil {
		return err
	}
	ctx, cancel := interruptible(c.Context())
	defer cancel()
	l, err := o.ownLab(c, "verify-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Down()) }()
	log := c.ErrOrStderr()
	start := time.Now()
	var wrong []verify.Disagreement
	probes, expected, done := 0, 0, 0
	encoder := json.NewEncoder(w)
	err = verify.Run(ctx, l, steps, verify.Options{Family: family, Timeout: o.timeout}, func(r verify.Outcome) error {
		for _, p := range steps[done].Probes {
			if p.Expect != nil {
				expected++
			}
		}
		done++
		probes += len(r.Got)
		wrong = append(wrong, r.Wrong...)
		fmt.Fprintf(log, "%d/%d %s/%s step %d: %s, %d wrong, %d late (programmed in %s, probed in %s)\n", done, len(steps), r.Suite, r.Case, r.Step,
			plural(len(r.Got), "probe"), len(r.Wrong), r.Late, r.Programming.Round(time.Millisecond), r.Probing.Round(time.Millisecond))
		return encoder.Encode(r)
	})
	fmt.Fprintf(log, "%s, %s, %d with an expectation, %d wrong; IPv%s, timeout %s, backend %s; %s\n", plural(done, "step"), plural(probes, "probe"),
		expected, len(wrong), family, o.timeout, o.config.Backend, time.Since(start).Round(100*time.Millisecond))
	if perr := printDisagreements(log, wrong); err == nil {
		err = perr
	}
	if len(wrong) > 0 {
		err = errors.Join(err, fmt.Errorf("%s: %w", plural(len(wrong), "disagreement"), ErrDisagreement))
	}
	return err
}

// ownLab makes a lab for this command alone. Labs of this kind that crashed
// commands left are removed first.
func (o *options) ownLab(c *cobra.Command, prefix string) (*lab.Lab, error) {
	config := o.config
	if !c.Flags().Changed("name") {
		if err := lab.CleanupDead(config.Root, prefix); err != nil {
			return nil, err
		}
		config.Name = fmt.Sprintf("%s%d", prefix, os.Getpid())
	}
	return lab.Up(c.Context(), config)
}

func printDisagreements(w io.Writer, wrong []verify.Disagreement) error {
	if len(wrong) == 0 {
		return nil
	}
	t := terminal.NewTable(terminal.StyleFor(w), "STEP", "FROM", "TO", "PORT", "EXPECTED", "GOT", "REASON")
	for i, d := range wrong {
		if i == maxShown {
			t.Row(fmt.Sprintf("... and %d more", len(wrong)-i))
			break
		}
		got := "not tried"
		if d.Result.Tried {
			got = verdict(d.Result.Through)
		}
		p := d.Result.Probe
		t.Row(d.Step, p.From, p.To, Port{Protocol: p.Protocol, Port: p.Port}, verdict(d.Expected), got, d.Result.Reason)
	}
	_, err := fmt.Fprintln(w, t)
	return err
}

func verdict(through bool) string {
	if through {
		return "through"
	}
	return "blocked"
}
