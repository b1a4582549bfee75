package backend

import (
	"context"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/nftables"
)

// nftablesBackend judges in one private nftables table.
type nftablesBackend struct {
	common
	table      *nftables.Table
	collisions *collisions
	denials    Denials
	at         Config
}

// NewNFTables returns the backend in one private nftables table, for the node
// of that name. With masquerade, pods are hidden behind the node's address on
// the way out of the cluster.
func NewNFTables(node string, masquerade bool) Backend {
	return newNFTables(Config{Node: node, Masquerade: masquerade})
}

func newNFTables(c Config) *nftablesBackend {
	table := nftables.New(nftables.Options{NetNS: c.NetNS})
	r, all := NFTablesManagers(c, table)
	b := &nftablesBackend{at: c, table: table, collisions: newCollisions(all)}
	b.denials = nflogDenials{c, func(ctx context.Context, add func(comment string, packets uint64)) error {
		return countDrops(ctx, table, rules.DropChains(), add)
	}}
	b.common = common{name: config.NFTables, renderer: r, stage: Stage{
		Name: config.NFTables, Required: true, Managers: all, Timeout: 60 * time.Second,
		Invalidate: table.Invalidate, Watch: table.Watch, Apply: b.apply,
	}}
	return b
}

func (b *nftablesBackend) apply(ctx context.Context) (Applied, error) {
	return b.collisions.apply(ctx, func(ctx context.Context) (Applied, error) {
		r, err := b.table.Apply(ctx)
		return applied(r), err
	})
}

// Decides implements Follower: while another backend is in force, the table needs no guard.
func (b *nftablesBackend) Decides() { b.table.SetGuard(rules.Guard(model.GatewayPort)) }

// Hits implements Observer.
func (b *nftablesBackend) Hits(ctx context.Context, counted Counted, _ map[policyflows.RuleID]RuleKey) error {
	s, err := b.table.Snapshot(ctx)
	for _, c := range s.Chains {
		for _, r := range c.Rules {
			counted.add(r.Comment, r.Packets)
		}
	}
	return err
}

// Denials implements Observer.
func (b *nftablesBackend) Denials() Denials { return b.denials }

// Logs implements Observer.
func (b *nftablesBackend) Logs() Reports { return nflogLogs{b.at} }

// Left implements Leftovers.
func (b *nftablesBackend) Left(ctx context.Context) (bool, error) {
	s, err := b.table.Snapshot(ctx)
	return s.Exists, err
}

// Remove implements Leftovers.
func (b *nftablesBackend) Remove(ctx context.Context, _ string) error { return b.table.Remove(ctx) }

// Close implements Leftovers.
func (b *nftablesBackend) Close() error { return b.table.Close() }

// countDrops calls add with comment and packet counter of each rule in these chains.
func countDrops(ctx context.Context, table *nftables.Table, chains []string, add func(comment string, packets uint64)) error {
	for _, name := range chains {
		all, err := table.Rules(ctx, name)
		if err != nil {
			return err
		}
		for _, r := range all {
			add(r.Comment, r.Packets)
		}
	}
	return nil
}
