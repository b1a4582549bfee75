package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/internal/terminal"
)

func (o *options) matrixCommand() *cobra.Command {
	var ports, others []string
	var all bool
	c := &cobra.Command{
		Use:   "matrix",
		Short: "Probe all pods against all and compare with the policies' verdicts",
		Long: fmt.Sprintf(`Probe all pods against all and compare with the policies' verdicts. With more than %d
pods, those that no policy distinguishes share a row and a column; all are probed.`, mostRows),
		Example: `  felixctl lab matrix
  felixctl lab matrix --all
  felixctl lab matrix --port 80/tcp --port 53/udp`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			family, err := o.parseProbe()
			if err != nil {
				return err
			}
			var wanted []Port
			for _, text := range ports {
				p, err := ParsePort(text)
				if err != nil {
					return err
				}
				wanted = append(wanted, p)
			}
			state, err := o.client().State(c.Context())
			if err != nil {
				return err
			}
			m, err := NewMatrix(&state, others, wanted, family)
			if err != nil {
				return err
			}
			start := time.Now()
			stop := terminal.Progress(c.ErrOrStderr(), terminal.Doing("probing "+plural(len(m.Probes()), "connection")))
			results, err := o.client().Probe(c.Context(), m.Probes(), o.timeout)
			took := time.Since(start)
			stop()
			if err != nil {
				return err
			}
			m.Fill(results)
			err = o.output.Print(c.OutOrStdout(), m, func() error {
				if !all && len(m.From) > mostRows {
					return errors.Join(m.PrintClasses(c.OutOrStdout(), classesOf(&state)), m.Summary(c.OutOrStdout(), took, o.timeout))
				}
				return errors.Join(m.Print(c.OutOrStdout()), m.Summary(c.OutOrStdout(), took, o.timeout))
			})
			if err != nil {
				return err
			}
			if wrong := len(m.Wrong()); wrong > 0 {
				return fmt.Errorf("%s of %d: %w", plural(wrong, "cell"), len(m.Cells), ErrDisagreement)
			}
			return nil
		},
	}
	o.probeFlags(c)
	o.outputFlag(c)
	c.Flags().StringSliceVar(&ports, "port", nil, "ports to try, as 80/tcp or tcp/80 (default: all that the pods serve)")
	c.Flags().BoolVar(&all, "all", false, "a row and a column for each pod, however many there are")
	c.Flags().StringSliceVar(&others, "with", nil, "further ends: node:NAME or ip:ADDRESS")
	return c
}
