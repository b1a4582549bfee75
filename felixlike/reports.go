package felixlike

import (
	"context"

	"github.com/felixlike/felixlike/felixlike/denied"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// nflogDenials is how the backends in netfilter tell of what they deny. counters hands
// over what the rules of theirs have counted, by comment.
func nflogDenials(c Choice, counters func(context.Context, func(comment string, packets uint64)) error) Denials {
	return Denials{
		Check: func(ctx context.Context) error { return tryReports(ctx, c) },
		Listen: func(ctx context.Context, got func(denied.Report)) (<-chan struct{}, error) {
			return denied.ListenNFLOG(ctx, c.NetNS, got)
		},
		Skipped: func(ctx context.Context) (uint64, error) {
			return skipped(ctx, counters)
		},
	}
}

// skipped returns how many packets chains have dropped and not reported.
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

// tryReports has the backend program what reports, in a network namespace that nobody
// uses: what the kernel lacks for that is told before the node's own tables are
// touched.
func tryReports(ctx context.Context, c Choice) error {
	return inScratch(ctx, c, append(tryModel(), model.DenialsUpdate{Reported: true}))
}
