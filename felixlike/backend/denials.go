package backend

import (
	"context"

	"github.com/felixlike/felixlike/felixlike/denied"
)

// Denials is how a backend reports denied packets. What it programs for that follows from
// model.DenialsUpdate.
type Denials interface {
	// Check returns the reason if the dataplane cannot report. It is called before
	// the dataplane is told to.
	Check(ctx context.Context) error
	// Listen calls got for each report until ctx ends. It closes ended then, or when no
	// more reports come.
	Listen(ctx context.Context, got func(denied.Report)) (ended <-chan struct{}, err error)
	// Skipped returns a number that grows with each denied packet without a report,
	// because there are too many.
	Skipped(ctx context.Context) (uint64, error)
	// Refused returns the reason if the dataplane does not report although it was told
	// to, and no quarantined object of the stage says so.
	Refused() error
}
