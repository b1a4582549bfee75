package felixlike

import (
	"context"
	"time"

	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables"
)

// Backend is what decides policy: a few managers, and the stage that programs
// what they want.
type Backend struct {
	Name     string
	Managers []managers.Manager
	Stage    Stage
}

// NewNFTables returns the backend in one private nftables table, for the node
// of that name. With masquerade, pods are hidden behind the node's address on
// the way out of the cluster.
func NewNFTables(node string, masquerade bool) Backend {
	table := nftables.New(nftables.Options{})
	r := rules.NewRenderer(GatewayPort, rules.NFTablesNameLength)
	b := Backend{
		Name: "nftables",
		Managers: []managers.Manager{
			managers.NewStaticManager(node, r, table, table),
			managers.NewIPSetManager(table),
			managers.NewPolicyManager(node, r, table),
			managers.NewEndpointManager(r, table, managers.NewMapDispatcher(table)),
		},
		Stage: Stage{
			Name: "nftables", Required: true, Timeout: 60 * time.Second, Invalidate: table.Invalidate,
			Apply: func(ctx context.Context) (Applied, error) {
				r, err := table.Apply(ctx)
				return applied(r), err
			},
		},
	}
	if masquerade {
		b.Managers = append(b.Managers, managers.NewMasqManager(node, r, table))
	}
	return b
}

// applied is what a stage tells of a table's result.
func applied(r tables.Result) Applied {
	return Applied{
		Writes: r.Messages, Rules: r.Rules, Elements: r.Elements,
		Refused: r.Refused, Repaired: r.Repaired,
	}
}
