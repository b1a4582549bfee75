package backend

import (
	"context"
	"errors"
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
// between two pods there. A second table, of the family bridge, drops frames that netfilter would not see even so.
func PodSources(c Config, bridged func() bool) Stage {
	table := nftables.New(nftables.Options{Table: nftables.PodSourcesTable, NetNS: c.NetNS})
	frames := nftables.New(nftables.Options{Table: nftables.PodSourcesTable, Bridge: true, NetNS: c.NetNS})
	m, atBridges := PodSourceManager(c, table, table), managers.NewFrameManager(frames)
	remove := &remover{table: frames}
	return Stage{
		Name: PodSourcesStage, Required: true, Timeout: 30 * time.Second, WatchIncomplete: true,
		Managers:   []managers.Manager{m, atBridges},
		Invalidate: func() { table.Invalidate(); remove.invalidate() },
		Watch:      table.Watch, WatchToo: frames.Watch,
		Apply: func(ctx context.Context) (Applied, error) {
			did, err := table.Apply(ctx)
			all := applied(did)
			if err != nil {
				return all, err
			}
			if atBridges.Needed() {
				remove.again()
				did, err = frames.Apply(ctx)
				all = all.and(did)
			} else {
				var removed Applied
				removed, err = remove.apply(ctx)
				all.Writes += removed.Writes
			}
			if err != nil || !bridged() {
				return all, err
			}
			return all, hostnet.FilterBridges()
		},
	}
}

// RemovePodSources returns the stage that removes both tables in other modes.
func RemovePodSources(c Config) Stage {
	table := remover{table: nftables.New(nftables.Options{Table: nftables.PodSourcesTable, NetNS: c.NetNS})}
	frames := remover{table: nftables.New(nftables.Options{Table: nftables.PodSourcesTable, Bridge: true, NetNS: c.NetNS})}
	return Stage{Name: PodSourcesStage, StartupOnly: true, BestEffort: true, Timeout: 10 * time.Second, Apply: func(ctx context.Context) (Applied, error) {
		one, err := table.apply(ctx)
		two, errFrames := frames.apply(ctx)
		return Applied{Writes: one.Writes + two.Writes}, errors.Join(err, errFrames)
	}}
}

// PodSourceManager returns the manager of that table, which renders into chains and sets.
func PodSourceManager(c Config, chains managers.Chains, sets ipsets.Sets) *managers.PodSourceManager {
	return managers.NewPodSourceManager(rules.NewRenderer(model.GatewayPort, rules.NFTablesNameLength).Between(c.TrafficMode), chains, sets)
}
