package felixlike

import (
	"context"
	"log/slog"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/datastore/kubernetes"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/egresselection"
	"github.com/felixlike/felixlike/felixlike/egressstatus"
	"github.com/felixlike/felixlike/felixlike/leases"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
)

// newElection returns the election of the nodes with the addresses of Egresses, nil if the datastore is no API server.
func newElection(source datastore.Source, node string, addresses *hostnet.Addresses, log *slog.Logger) driver.Election {
	s, ok := source.(*kubernetes.Source)
	if !ok {
		return nil
	}
	all := leases.New(s.Dynamic(), agentNamespace())
	return egresselection.New(egresselection.Options{
		Leases: all, Kernel: addresses, Node: node, Log: log.With("component", "egress"), Timing: egresselection.DefaultTiming(),
	}, all.API)
}

// writeEgressStatus writes the status of Egresses and pools, if the datastore is an API server. has reports whether this node has an address.
func (a *agent) writeEgressStatus(ctx context.Context, d *driver.Driver) error {
	s, ok := a.source.(*kubernetes.Source)
	if !ok || a.addresses == nil {
		return nil
	}
	o := egressstatus.DefaultOptions()
	o.Client, o.Log = s.Dynamic(), a.log.With("component", "egress")
	o.Look = func(ctx context.Context) (all []egressstatus.Status, err error) {
		return d.EgressStatus(ctx, a.addresses.Has)
	}
	return egressstatus.Run(ctx, o)
}
