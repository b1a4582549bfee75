package backend

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/iptables"
	"github.com/felixlike/felixlike/tables/nftables"
	"github.com/felixlike/felixlike/tables/nftables/maps"
)

// TunnelPortStage is the stage of the table that closes the tunnel port to strangers.
const TunnelPortStage = "tunnel port"

// ClosedPort is that table, which is the same beside every backend. The functions may be called from any goroutine.
type ClosedPort struct {
	// Stage removes a table of an earlier tunnel, if this one has no UDP port. It does not hold back other stages: without the table,
	// the tunnel guard in the bridge still drops packets of strangers.
	Stage Stage
	// Ends returns the addresses of the tunnel, and Problems the reason why the table is not in force.
	Ends     func() managers.Ends
	Problems func() []model.Problem
	// Dropped reads how many packets of strangers the table has dropped since it was made.
	Dropped func(context.Context) (uint64, error)
}

// TunnelPort returns the table that closes the tunnel port.
func TunnelPort(c Config) ClosedPort {
	table := nftables.New(nftables.Options{Table: nftables.TunnelTable, NetNS: c.NetNS})
	if c.TunnelPort == 0 {
		return ClosedPort{
			Stage:    Stage{Name: TunnelPortStage, StartupOnly: true, BestEffort: true, Timeout: 10 * time.Second, Apply: (&remover{table: table}).apply},
			Ends:     func() managers.Ends { return managers.Ends{} },
			Problems: func() []model.Problem { return nil },
			Dropped:  func(context.Context) (uint64, error) { return 0, nil },
		}
	}
	var missing atomic.Pointer[model.Problem]
	m := TunnelPortManager(c, table, table)
	return ClosedPort{
		Stage: Stage{
			Name: TunnelPortStage, BestEffort: true, Timeout: 30 * time.Second,
			Managers:   []managers.Manager{m},
			Invalidate: table.Invalidate, Watch: table.Watch,
			Apply: func(ctx context.Context) (Applied, error) {
				if !m.Known() {
					return Applied{}, nil
				}
				did, err := table.Apply(ctx)
				missing.Store(nil)
				if err == nil {
					return applied(did), nil
				}
				if _, unreadable := table.Snapshot(ctx); unreadable == nil {
					return applied(did), err
				}
				// A kernel without nf_tables runs a backend in iptables-legacy, and its agent has to become ready.
				missing.Store(&model.Problem{
					Object: model.ObjectRef{Kind: "Node", Name: c.Node},
					Reason: fmt.Sprintf("the tunnel port is open to strangers, and the tunnel guard alone drops their packets: %v", err),
				})
				return Applied{}, nil
			},
		},
		Ends: m.Ends,
		Problems: func() []model.Problem {
			if p := missing.Load(); p != nil {
				return []model.Problem{*p}
			}
			return nil
		},
		Dropped: func(ctx context.Context) (packets uint64, err error) {
			dropped := rules.DroppedStrangers(c.TunnelPort)
			if missing.Load() != nil {
				return 0, nil
			}
			all, err := table.Rules(ctx, dropped.Chain)
			for _, r := range all {
				if r.Hash == dropped.Hash {
					packets += r.Packets
				}
			}
			return packets, err
		},
	}
}

// remover removes a table that is not needed. Once it is gone, the kernel is not asked about it in each cycle, until it may be there again.
type remover struct {
	table *nftables.Table
	gone  atomic.Bool
}

// apply removes the table, if it is there.
func (r *remover) apply(ctx context.Context) (Applied, error) {
	if r.gone.Swap(true) {
		return Applied{}, nil
	}
	s, err := r.table.Snapshot(ctx)
	if err == nil && s.Exists {
		if err = errors.Join(r.table.Remove(ctx), r.table.Close()); err == nil {
			return Applied{Writes: 1}, nil
		}
	}
	if err == nil || nftables.Missing(err) {
		return Applied{}, nil // without nf_tables there is no table
	}
	r.again()
	return Applied{}, err
}

// again notes that the table may be there: it was programmed, or another program may have added it.
func (r *remover) again() { r.gone.Store(false) }

// invalidate is Invalidate of the table's stage.
func (r *remover) invalidate() {
	r.table.Invalidate()
	r.again()
}

// TunnelPortManager returns the manager of that table, which renders into chains and sets.
func TunnelPortManager(c Config, chains managers.Chains, sets ipsets.Sets) *managers.TunnelPortManager {
	return managers.NewTunnelPortManager(c.Node, c.TunnelPort, chains, sets)
}

// RemoveBeside removes the objects that every backend shares: the rules of Firewalls and Forwarding, the tables of Senders, TunnelPort,
// Egress, PodSources and Services, and the addresses of Egresses.
func RemoveBeside(ctx context.Context, netns int) error {
	errs := []error{iptables.RemoveInputRule(ctx, netns), iptables.RemoveForwardRules(ctx, netns)}
	for _, o := range []nftables.Options{
		{Table: nftables.SendersTable},
		{Table: nftables.TunnelTable},
		{Table: nftables.EgressTable},
		{Table: nftables.HostsTable},
		{Table: nftables.PodSourcesTable},
		{Table: nftables.PodSourcesTable, Bridge: true},
	} {
		o.NetNS = netns
		table := nftables.New(o)
		errs = append(errs, table.Remove(ctx), table.Close())
	}
	services := maps.New(maps.Options{Table: rules.ServicesTable, NetNS: netns})
	_, gone := services.Delete()
	errs = append(errs, gone, services.Close())
	addresses := hostnet.Addresses{NetNS: netns}
	_, err := addresses.Apply(hostnet.Wanted{})
	return errors.Join(append(errs, err)...)
}
