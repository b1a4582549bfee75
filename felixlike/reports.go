package felixlike

import (
	"context"

	"github.com/felixlike/felixlike/felixlike/denied"
	"github.com/felixlike/felixlike/model"
)

// nflogDenials is how the backends in netfilter tell of what they deny.
func nflogDenials(c Choice) Denials {
	return Denials{
		Check: func(ctx context.Context) error { return tryReports(ctx, c) },
		Listen: func(ctx context.Context, got func(denied.Report)) (<-chan struct{}, error) {
			return denied.ListenNFLOG(ctx, c.NetNS, got)
		},
	}
}

// tryReports has the backend program what reports, in a network namespace that nobody
// uses: what the kernel lacks for that is told before the node's own tables are
// touched.
func tryReports(ctx context.Context, c Choice) error {
	return inScratch(ctx, c, append(tryModel(), model.DenialsUpdate{Reported: true}))
}
