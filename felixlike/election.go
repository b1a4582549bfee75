package felixlike

import (
	"log/slog"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/datastore/kubernetes"
	"github.com/felixlike/felixlike/felixlike/egresselection"
	"github.com/felixlike/felixlike/felixlike/leases"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
)

// newElection returns the election of the nodes with the addresses of Egresses, nil if the datastore is no API server.
func newElection(source datastore.Source, node string, addresses *hostnet.Addresses, log *slog.Logger) Election {
	s, ok := source.(*kubernetes.Source)
	if !ok {
		return nil
	}
	all := leases.New(s.Dynamic(), agentNamespace())
	return egresselection.New(egresselection.Options{
		Leases: all, Kernel: addresses, Node: node, Log: log.With("component", "egress"), Timing: egresselection.DefaultTiming(),
	}, all.API)
}
