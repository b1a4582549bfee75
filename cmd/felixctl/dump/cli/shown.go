package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/compare"
)

// shown are the flags that choose the parts of a state to show or compare.
type shown struct {
	onlyOurs, counters bool
	elements           string
}

func (s *shown) flags(c *cobra.Command) {
	c.Flags().BoolVar(&s.onlyOurs, "only-ours", true, "leave out objects of other programs")
	c.Flags().BoolVar(&s.counters, "counters", false, "with the counters of rules and flows")
	c.Flags().StringVar(&s.elements, "elements", dump.Full.String(), "elements of sets: full, count or none")
}

func (s *shown) options() (compare.Options, error) {
	e, err := dump.ParseElements(s.elements)
	if err != nil {
		return compare.Options{}, fmt.Errorf("--elements: %w", err)
	}
	return compare.Options{OnlyOurs: s.onlyOurs, Counters: s.counters, Elements: e}, nil
}
