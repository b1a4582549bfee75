package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/internal/files"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/probe"
	"github.com/felixlike/felixlike/test/lab/verify"
	"github.com/felixlike/felixlike/test/truthtable"
)

// maxShown bounds the table of disagreements.
const maxShown = 50

func (o *options) verifyCommand() *cobra.Command {
	var cases, out string
	repeat, proves := 1, true
	c := &cobra.Command{
		Use:   "verify --cases FILE",
		Short: "Judge a backend by a truth table, in a new lab",
		Long: `Judge a backend by a truth table, in a new lab.

For every step of the table the cluster is brought to the step's state, and
every probe is tried with real packets. Each step gives one line of JSON on
standard output; "got" has a character a probe: 1 through, 0 not through
(refused, or no answer within --timeout), - not tried.

A probe that the table lets through and that has no answer within --timeout is
tried for ten seconds more. If it is answered then, it is late. More than 0.1 %
of such probes are a failure: they are named per run, and so per backend.

Packets are a sample. So after each step felixctl prove compares, on each node, what
is programmed with what the policies want, and that with what the other backends
would program, for all packets. The summary says how many of these comparisons are
proved equal, and names the rest (not proved: ...). With a few pods it takes about a
second a node and step; with openflow it takes minutes from 20 pods on, and one
minute is the limit. It proves in the first repetition; --prove=false leaves it out.

Exit codes: 0 all as expected; 1 some probe was not, too many were late, or a proof
found a difference; 2 anything else, also when a probe could not be tried, or a
proof failed.`,
		Example: "  felixctl lab verify --cases cases.json --backend openflow",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			steps, err := readCases(cases)
			if err != nil {
				return err
			}
			proved := 0
			if proves {
				proved = len(steps)
			}
			if steps, err = repeated(steps, repeat); err != nil {
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
			if err := checkRate(o.config.ProbeRate); err != nil {
				return err
			}
			return o.verify(c, steps, w, proved)
		},
	}
	o.configFlags(c)
	o.probeFlags(c)
	terminal.HeadersFlag(c)
	c.Flags().StringVar(&cases, "cases", "", "truth table (JSON lines); - is standard input")
	c.Flags().IntVar(&repeat, "repeat", repeat, "repeat the table this many times, in one lab")
	c.Flags().IntVar(&o.config.ProbeRate, "rate", probe.DefaultRate, "probes to begin per second")
	c.Flags().BoolVar(&proves, "prove", proves, "compare the programmed state with the policies and the other backends for all packets, after each step")
	c.Flags().StringVar(&out, "out", "", "write the lines to this file too")
	_ = c.MarkFlagRequired("cases") // the flag is there: it was just made
	return c
}

// maxCases bounds a truth table.
const maxCases = 1 << 30

func readCases(path string) ([]truthtable.Step, error) {
	file := os.Stdin
	if path != "-" {
		var err error
		if file, err = files.Open(path, maxCases); err != nil {
			return nil, err
		}
		defer file.Close()
	}
	steps, err := truthtable.Read(files.Bounded(file, maxCases))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return steps, nil
}

// maxRepeat bounds the repetitions of a table.
const maxRepeat = 10_000

func repeated(steps []truthtable.Step, times int) ([]truthtable.Step, error) {
	if times < 1 || times > maxRepeat {
		return nil, fmt.Errorf("--repeat %d: want 1 to %d", times, maxRepeat)
	}
	return slices.Repeat(steps, times), nil
}

// maxRate is more than any datapath here takes.
const maxRate = 100_000

func checkRate(rate int) error {
	if rate < 1 || rate > maxRate {
		return fmt.Errorf("--rate %d: want 1 to %d probes a second", rate, maxRate)
	}
	return nil
}

// verify brings a new lab to each step, and proves after the first provedSteps.
func (o *options) verify(c *cobra.Command, steps []truthtable.Step, w io.Writer, provedSteps int) (err error) {
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
	var all verify.Tally
	encoder := json.NewEncoder(w)
	proved := newProofs(o.config.Backend, provedSteps)
	err = verify.Run(ctx, l, steps, verify.Options{Family: family, Timeout: o.timeout}, func(r verify.Outcome) error {
		step := &steps[all.Steps]
		all.Add(r)
		wrong = append(wrong, r.Wrong...)
		if proved.after(all.Steps, r) {
			proved.add(ctx, step.String(), nodesOf(l, step))
		}
		fmt.Fprintf(log, "%d/%d %s/%s step %d: %s, %s (programmed in %s, probed in %s)\n", all.Steps, len(steps), r.Suite, r.Case, r.Step,
			plural(len(r.Got), "probe"), judgement(len(r.Wrong), r.Late, r.NotTried), r.Programming.Round(time.Millisecond), r.Probing.Round(time.Millisecond))
		return encoder.Encode(r)
	})
	fmt.Fprintf(log, "backend %s: %s, %s, %d with an expectation, %s; IPv%s, %d probes a second, timeout %s; %s\n", o.config.Backend, plural(all.Steps, "step"), plural(all.Probes, "probe"),
		all.Expected, judgement(all.Wrong, all.Late, all.NotTried), family, o.config.ProbeRate, o.timeout, time.Since(start).Round(100*time.Millisecond))
	if perr := printDisagreements(log, wrong); err == nil {
		err = perr
	}
	perr := proved.print(log)
	if !errors.Is(perr, ErrDisagreement) {
		err, perr = errors.Join(err, perr), nil
	}
	if err = verdictOf(all, err); err == nil {
		err = perr
	}
	return err
}

// nodesOf returns the nodes of a step.
func nodesOf(l *lab.Lab, step *truthtable.Step) (all []*lab.Node) {
	for _, n := range step.Nodes {
		if node := l.Node(n.Name); node != nil {
			all = append(all, node)
		}
	}
	return all
}

// judgement summarises the results of probes.
func judgement(wrong, late, notTried int) string {
	text := fmt.Sprintf("%d wrong, %d late", wrong, late)
	if notTried > 0 {
		text += fmt.Sprintf(", %d NOT TRIED", notTried)
	}
	return text
}

// verdictOf returns the error of a table. Errors come before disagreements: the
// results of such a table are incomplete.
func verdictOf(all verify.Tally, err error) error {
	late := all.TooLate()
	if err != nil {
		if all.Wrong > 0 {
			err = errors.Join(err, errors.New(plural(all.Wrong, "disagreement")))
		}
		return errors.Join(err, late)
	}
	if all.Wrong > 0 {
		err = fmt.Errorf("%s: %w", plural(all.Wrong, "disagreement"), ErrDisagreement)
	}
	if late != nil {
		err = errors.Join(err, fmt.Errorf("%w: %w", late, ErrDisagreement))
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
		p := d.Result.Probe
		t.Row(d.Step, p.From, p.To, Port{Protocol: p.Protocol, Port: p.Port}, verdict(d.Expected), verdict(d.Result.Through), d.Result.Reason)
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
