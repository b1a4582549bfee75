package node

import (
	"context"
	"errors"
	"sync"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
)

// Reasons other than policy for which the switch drops packets: values of a metric's label.
const (
	droppedTunnelEnd = "tunnel-end"
	droppedRate      = "new-connection-rate"
	// droppedStranger is about packets of the tunnel, not of this node's pods.
	droppedStranger = "tunnel-source"
)

// droppedPackets sums, by reason, the packets of pods that a switch drops for reasons
// other than policy. The sums never fall: they keep the packets of counters that are
// gone. Packets between the last read of a counter and its end are not counted.
type droppedPackets struct {
	// strangers reads how many packets of strangers the host has dropped, before the switch.
	strangers func(context.Context) (uint64, error)

	mu sync.Mutex
	// last are the counters of the switch at the last read.
	last map[dropCounter]uint64
	// gone are the packets of counters that the switch no longer has, by reason.
	gone map[string]uint64
}

// dropCounter identifies a counter of the switch: a meter, the cookie of a flow, the number of a table, or hostTable.
type dropCounter struct {
	reason string
	id     uint64
}

// hostTable is the host's table of the tunnel port, as the table of a counter: no table of the switch has this number.
const hostTable = 1 << 8

// NewDroppedPackets returns the sums, with the packets of strangers that the host has dropped.
func NewDroppedPackets(strangers func(context.Context) (uint64, error)) *droppedPackets {
	return &droppedPackets{strangers: strangers, gone: map[string]uint64{droppedTunnelEnd: 0, droppedRate: 0, droppedStranger: 0}}
}

// Read reads the counters of a switch, and returns the sums.
func (d *droppedPackets) Read(ctx context.Context, socket string) (map[string]uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, err := readDropCounters(ctx, socket)
	if err != nil {
		return nil, err
	}
	host := dropCounter{droppedStranger, hostTable}
	if now[host], err = d.strangers(ctx); err != nil {
		now[host] = d.last[host]
	}
	return d.add(now), nil
}

// add adds the counters that the switch has now. A counter that is lower than before started
// again at zero.
func (d *droppedPackets) add(now map[dropCounter]uint64) map[string]uint64 {
	for c, before := range d.last {
		if packets, found := now[c]; !found || packets < before {
			d.gone[c.reason] += before
		}
	}
	d.last = now
	sums := map[string]uint64{}
	for reason, packets := range d.gone {
		sums[reason] = packets
	}
	for c, packets := range now {
		sums[c.reason] += packets
	}
	return sums
}

// readDropCounters reads the counters of a switch. Each starts at zero when the pod, the
// peer node or the switch starts.
func readDropCounters(ctx context.Context, socket string) (_ map[dropCounter]uint64, err error) {
	conn, err := openflow.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	counters := map[dropCounter]uint64{}
	for _, table := range []uint8{pipeline.TableClassifier, pipeline.TableSpoofGuard} {
		flows, err := conn.FlowStats(ctx, pipeline.Owner, table)
		if err != nil {
			return nil, err
		}
		for _, f := range flows {
			switch {
			case pipeline.IsStranger(table, f.Priority):
				counters[dropCounter{droppedStranger, uint64(table)}] += f.Packets
			case table == pipeline.TableSpoofGuard && pipeline.IsTunnelEnd(f.Priority):
				counters[dropCounter{droppedTunnelEnd, f.Cookie}] += f.Packets
			}
		}
	}
	meters, err := conn.Meters(ctx)
	for id, packets := range meters {
		if policyflows.IsRateMeter(id) {
			counters[dropCounter{droppedRate, uint64(id)}] = packets
		}
	}
	return counters, err
}
