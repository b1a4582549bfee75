package backend

import (
	"context"

	"github.com/felixlike/felixlike/felixlike/denied"
)

// Reports reads a backend's reports of packets. An update of the model turns the reports on and
// off: DenialsUpdate those of denied packets, LogsUpdate those of rules with Log.
type Reports interface {
	// Check returns the reason if the dataplane cannot report. It is called before reports
	// are turned on.
	Check(ctx context.Context) error
	// Listen calls got for each report until ctx ends. It closes ended then, or when no
	// more reports come.
	Listen(ctx context.Context, got func(denied.Report)) (ended <-chan struct{}, err error)
	// Refused returns the reason if the dataplane does not report although reports are on,
	// and no quarantined object of the stage has this reason.
	Refused() error
}

// Denials reads a backend's reports of denied packets.
type Denials interface {
	Reports
	// Skipped returns a number that grows with each denied packet without a report,
	// because there are too many.
	Skipped(ctx context.Context) (uint64, error)
}
