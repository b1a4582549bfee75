package node

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/internal/panics"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// applyPhysicalFlows brings the flows of the bridge with the uplink to the desired state. They lead packets that may be answers to
// pods to the integration bridge.
func (b *Bridge) applyPhysicalFlows(ctx context.Context, did *backend.Applied) error {
	if b.snat == nil {
		return nil
	}
	snat, uplink := *b.snat, b.client.UplinkPort()
	snat.Address = b.localIP.Unmap()
	if err := b.physical.Connect(ctx); err != nil {
		return err
	}
	b.physical.Flows.SetFlows("snat", func() []openflow.Flow { return pipeline.Physical(&snat, uplink) })
	sent, err := b.physical.Send(ctx)
	did.Writes += sent.Writes
	did.Flows += sent.Flows
	did.Repaired = append(did.Repaired, sent.Repaired...)
	if err == nil && sent.Writes > 0 {
		err = b.daemon.Purge(ctx)
	}
	return err
}

// removePhysicalFlows removes the flows of an earlier agent with snat from the bridge with the uplink, before their ports go.
func (b *Bridge) removePhysicalFlows(ctx context.Context) error {
	if b.snat != nil || b.removed || b.cfg.Uplink == "" {
		return nil
	}
	none := backend.Link{Socket: b.physical.Socket, Flows: openflow.NewFlowTable(pipeline.Owner, pipeline.Version)}
	err := none.Connect(ctx)
	if err == nil {
		_, err = none.Send(ctx)
		none.Close()
	}
	if backend.NoSwitch(err) {
		err = nil // the bridge is not made yet
	}
	b.removed = err == nil
	return err
}

// WatchFlows notices foreign changes of the forwarding flows of both bridges.
func (b *Bridge) WatchFlows(ctx context.Context, changed func()) error {
	if b.snat == nil {
		return b.forwarding.Flows.Watch(ctx, changed)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return panics.Guard(func() error { return b.forwarding.Flows.Watch(ctx, changed) }) })
	g.Go(func() error { return panics.Guard(func() error { return b.physical.Flows.Watch(ctx, changed) }) })
	return g.Wait()
}

// RereadFlows makes the next apply read the flows of both bridges.
func (b *Bridge) RereadFlows() {
	b.forwarding.Reread()
	b.physical.Reread()
}
