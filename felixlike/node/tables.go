package node

import (
	"context"

	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
)

// LimitedTables returns the node's tables with a limit. It leaves out those that cannot be
// read from here.
func LimitedTables(ctx context.Context, daemon *vswitchd.Client) []metrics.Table {
	var all []metrics.Table
	if entries, limit, err := conntrack.Entries(); err == nil && limit > 0 {
		all = append(all, metrics.Table{Name: "conntrack", Entries: entries, Limit: limit})
	}
	// Only the userspace datapath answers: the kernel's tracks in the table above.
	if entries, err := daemon.Connections(ctx); err == nil {
		if limit, err := daemon.MostConnections(ctx); err == nil && limit > 0 {
			all = append(all, metrics.Table{Name: "switch-conntrack", Entries: entries, Limit: limit})
		}
	}
	return all
}
