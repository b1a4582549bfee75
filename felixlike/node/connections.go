package node

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/carry"
)

// Connections lists the enforcement point's connections, sorted. It leaves out those to a
// Service address: these packets are on their way to the host, which translates the address,
// and are not judged.
func Connections(ctx context.Context, carrier *carry.Carrier, place backend.Place, services []netip.Prefix) ([]control.Connection, error) {
	known, err := carrier.Through(ctx, place == backend.InSwitch)
	all := make([]control.Connection, 0, len(known))
	for _, k := range known {
		to := k.Reply.Reverse()
		if slices.ContainsFunc(services, func(p netip.Prefix) bool { return p.Contains(to.Dst) }) {
			continue
		}
		all = append(all, control.Connection{
			Protocol: model.Protocol(k.Original.Protocol), Source: k.Original.Src, SourcePort: k.Original.SrcPort, Destination: to.Dst, Port: to.DstPort,
		})
	}
	slices.SortFunc(all, func(a, b control.Connection) int {
		return cmp.Or(a.Source.Compare(b.Source), a.Destination.Compare(b.Destination), cmp.Compare(a.Protocol, b.Protocol),
			cmp.Compare(a.Port, b.Port), cmp.Compare(a.SourcePort, b.SourcePort))
	})
	return all, err
}
