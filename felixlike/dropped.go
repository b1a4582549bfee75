package felixlike

import (
	"context"
	"errors"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
)

// Reasons other than policy for which the switch drops packets of pods: values of a
// metric's label.
const (
	droppedTunnelEnd = "tunnel-end"
	droppedRate      = "new-connection-rate"
)

// readDropped reads how many packets of pods a switch has dropped for reasons other than
// policy, by reason. The counters of a pod start at zero when the pod or the switch starts.
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
