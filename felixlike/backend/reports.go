package backend

import (
	"context"

	"github.com/felixlike/felixlike/felixlike/denied"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// nflogDenials reports packets that netfilter backends deny.
type nflogDenials struct {
	at Config
	// counters calls add with comment and packet counter of each of the backend's rules.
	counters func(context.Context, func(comment string, packets uint64)) error
}

// Check implements Denials.
func (d nflogDenials) Check(ctx context.Context) error { return tryReports(ctx, d.at) }

// Listen implements Denials.
func (d nflogDenials) Listen(ctx context.Context, got func(denied.Report)) (<-chan struct{}, error) {
	return denied.ListenNFLOG(ctx, d.at.NetNS, rules.ReportGroup, got)
}

// Skipped implements Denials.
func (d nflogDenials) Skipped(ctx context.Context) (uint64, error) { return skipped(ctx, d.counters) }

// Refused implements Denials: the stage reports refused chains as quarantined.
func (d nflogDenials) Refused() error { return nil }

// skipped returns how many packets the chains dropped without a report.
func skipped(ctx context.Context, counters func(context.Context, func(comment string, packets uint64)) error) (uint64, error) {
	var dropped, reported uint64
	err := counters(ctx, func(comment string, packets uint64) {
		switch {
		case comment == rules.ReportComment:
			reported += packets
		case rules.IsDropComment(comment):
			dropped += packets
		}
	})
	// The two counters are read at different times.
	return dropped - min(reported, dropped), err
}

// tryReports programs the backend with reports in a scratch network namespace: so a missing
// kernel feature is found before the node's own tables change.
func tryReports(ctx context.Context, c Config) error {
	return inScratch(ctx, c, append(tryModel(), model.DenialsUpdate{Reported: true}))
}
