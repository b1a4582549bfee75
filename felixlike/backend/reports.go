package backend

import (
	"context"

	"github.com/felixlike/felixlike/felixlike/denied"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// nflogDenials reports packets that netfilter backends deny.
type nflogDenials struct {
	at       Config
	try      scratch
	renderer *rules.Renderer
	// counters calls add with each counter, at least with those of the chains that drop.
	counters func(context.Context, func(of rules.Counter, packets uint64)) error
}

// Check implements Denials.
func (d nflogDenials) Check(ctx context.Context) error { return d.try.reports(ctx, d.at) }

// Listen implements Denials.
func (d nflogDenials) Listen(ctx context.Context, got func(denied.Report)) (<-chan struct{}, error) {
	return denied.ListenNFLOG(ctx, d.at.NetNS, rules.ReportGroup, got)
}

// Skipped implements Denials.
func (d nflogDenials) Skipped(ctx context.Context) (uint64, error) {
	return skipped(ctx, d.renderer, d.counters)
}

// Refused implements Denials: the stage reports refused chains as quarantined.
func (d nflogDenials) Refused() error { return nil }

// skipped returns how many packets the chains dropped without a report.
func skipped(ctx context.Context, r *rules.Renderer, counters func(context.Context, func(of rules.Counter, packets uint64)) error) (uint64, error) {
	drops, reports := map[rules.Counter]bool{}, map[rules.Counter]bool{}
	for _, c := range r.DropChains() {
		for _, of := range rules.Ends(c) {
			drops[of] = true
		}
		for _, of := range rules.Reports(c) {
			reports[of] = true
		}
	}
	var dropped, reported uint64
	err := counters(ctx, func(of rules.Counter, packets uint64) {
		switch {
		case reports[of]:
			reported += packets
		case drops[of]:
			dropped += packets
		}
	})
	// The two counters are read at different times.
	return dropped - min(reported, dropped), err
}

// reports programs the backend with reports in a scratch network namespace: so a missing
// kernel feature is found before the node's own tables change.
func (try scratch) reports(ctx context.Context, c Config) error {
	return try(ctx, c, append(tryModel(), model.DenialsUpdate{Reported: true}))
}
