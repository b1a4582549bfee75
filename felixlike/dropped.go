package felixlike

import (
	"context"
	"errors"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
)

// Why the switch drops packets of pods beside policy: values of a metric's label.
const (
	droppedTunnelEnd = "tunnel-end"
	droppedRate      = "new-connection-rate"
)

// readDropped reads how many packets of pods a switch has dropped beside policy, by
// reason. The counts begin anew with each pod and each switch.
func readDropped(ctx context.Context, socket string) (_ map[string]uint64, err error) {
	conn, err := openflow.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	counts := map[string]uint64{droppedRate: 0}
	table, flows := pipeline.TunnelEnds()
	if counts[droppedTunnelEnd], err = conn.Packets(ctx, pipeline.Owner, table, flows); err != nil {
		return nil, err
	}
	meters, err := conn.Meters(ctx)
	for id, n := range meters {
		if policyflows.IsRateMeter(id) {
			counts[droppedRate] += n
		}
	}
	return counts, err
}
