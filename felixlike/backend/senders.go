package backend

import (
	"context"
	"time"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/nftables"
)

// SendersStage is the stage of the table that decides which pod addresses of packets without a tunnel are
// believed.
const SendersStage = "senders"

// Senders returns the stage of that table. It is the same beside every backend. In the mode Encap it removes a
// table of an earlier mode. The function returns the peers that are not believed; it may be called from any goroutine.
func Senders(c Config, hops managers.Hops) (Stage, func() []model.Problem) {
	table := nftables.New(nftables.Options{Table: nftables.SendersTable, NetNS: c.NetNS})
	if c.TrafficMode == model.Encap {
		return Stage{Name: SendersStage, StartupOnly: true, BestEffort: true, Timeout: 10 * time.Second, Apply: (&remover{table: table}).apply}, func() []model.Problem { return nil }
	}
	m := SenderManager(c, table, table, hops)
	return Stage{
		Name: SendersStage, Required: true, Timeout: 30 * time.Second,
		Managers:   []managers.Manager{m},
		Invalidate: table.Invalidate, Watch: table.Watch,
		Apply: func(ctx context.Context) (Applied, error) {
			if !m.Programmed() {
				return Applied{}, nil
			}
			did, err := table.Apply(ctx)
			return applied(did), err
		},
	}, m.Problems
}

// SenderManager returns the manager of that table, which renders into chains and sets.
func SenderManager(c Config, chains managers.Chains, sets ipsets.Sets, hops managers.Hops) *managers.SenderManager {
	r := rules.NewRenderer(model.GatewayPort, rules.NFTablesNameLength).Between(c.TrafficMode)
	return managers.NewSenderManager(c.Node, c.TrafficMode, r, chains, sets, hops)
}
