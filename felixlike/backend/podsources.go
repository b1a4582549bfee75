package backend

import (
	"context"
	"time"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/nftables"
)

// PodSourcesStage is the stage of the table that knows the packets of this node's pods in the mode networkPolicyOnly.
const PodSourcesStage = "pod sources"

// PodSources returns the stage of that table. It is the same beside every netfilter backend. bridged reports whether a
// pod is at a bridge: then the stage also has bridges pass their packets to netfilter, without which policy would not see packets
// between two pods there.
func PodSources(c Config, bridged func() bool) Stage {
	table := nftables.New(nftables.Options{Table: nftables.PodSourcesTable, NetNS: c.NetNS})
	m := PodSourceManager(c, table, table)
	return Stage{
		Name: PodSourcesStage, Required: true, Timeout: 30 * time.Second, Overlooks: true,
		Managers:   []managers.Manager{m},
		Invalidate: table.Invalidate, Watch: table.Watch,
		Apply: func(ctx context.Context) (Applied, error) {
			did, err := table.Apply(ctx)
			if err != nil || !bridged() {
				return applied(did), err
			}
			return applied(did), hostnet.FilterBridges()
		},
	}
}

// RemovePodSources returns the stage that removes the table in other modes.
func RemovePodSources(c Config) Stage {
	table := nftables.New(nftables.Options{Table: nftables.PodSourcesTable, NetNS: c.NetNS})
	return Stage{Name: PodSourcesStage, Once: true, Aside: true, Timeout: 10 * time.Second, Apply: removal(table)}
}

// PodSourceManager returns the manager of that table, which renders into chains and sets.
func PodSourceManager(c Config, chains managers.Chains, sets ipsets.Sets) *managers.PodSourceManager {
	return managers.NewPodSourceManager(rules.NewRenderer(model.GatewayPort, rules.NFTablesNameLength).Between(c.TrafficMode), chains, sets)
}
