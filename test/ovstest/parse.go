package ovstest

import (
	"fmt"

	"github.com/felixlike/felixlike/ovsfwd/flowtext"
)

// ParseFlow parses one line of a dump. Flows that do the same are equal strings. A flow that
// is not of a form that felixlike writes is an error.
func ParseFlow(text string) (*flowtext.Flow, error) {
	f, err := flowtext.Parse(text)
	if err != nil {
		return nil, err
	}
	if f.Foreign != "" {
		return nil, fmt.Errorf("unknown field or action in %q", text)
	}
	f.Normalise()
	return f, nil
}
