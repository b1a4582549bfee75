package backend

import (
	"context"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/managers/grants"
	"github.com/felixlike/felixlike/model"
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
	try        scratch
	// grants are nil with the layout rules.
	grants *grants.Grants
}

func newNFTables(c Config, try scratch) *nftablesBackend {
	table := nftables.New(nftables.Options{NetNS: c.NetNS})
	r, all := NFTablesManagers(c, table)
	b := &nftablesBackend{at: c, try: try, table: table, collisions: newCollisions(all)}
	for _, m := range all {
		if g, ok := m.(*grants.Grants); ok {
			b.grants = g
		}
	}
	b.denials = nflogDenials{c, try, r, func(ctx context.Context, add func(of rules.Counter, packets uint64)) error {
		return countDrops(ctx, table, r, add)
	}}
	b.common = common{name: config.NFTables, renderer: r, stage: Stage{
		Name: config.NFTables, Required: true, Managers: all, Timeout: policyTimeout,
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

// Activate implements Follower: while another backend is in force, the table needs no guard.
func (b *nftablesBackend) Activate() { b.table.SetGuard(rules.GuardOf(b.renderer)) }

// Hits implements Observer.
func (b *nftablesBackend) Hits(ctx context.Context, counted Counted, policies []*model.Policy) error {
	s, err := countRules(ctx, b.table, newCounterKeys(b.renderer, policies).addTo(counted))
	if err == nil && b.at.mapped() {
		counted.withoutChain(&s, b.renderer, policies)
	}
	return err
}

// Layout implements Observer.
func (b *nftablesBackend) Layout() Layout {
	l := Layout{FellBack: b.grants.Full(), Kept: b.grants.Kept(), InForce: config.LayoutRules, Maps: b.grants.Use()}
	if l.Maps != nil {
		l.InForce = config.LayoutMaps
	}
	return l
}

// Denials implements Observer.
func (b *nftablesBackend) Denials() Denials { return b.denials }

// Logs implements Observer.
func (b *nftablesBackend) Logs() Reports { return nflogLogs{b.at, b.try} }

// Left implements Leftovers.
func (b *nftablesBackend) Left(ctx context.Context) (bool, error) {
	s, err := b.table.Snapshot(ctx)
	return s.Exists, err
}

// Remove implements Leftovers.
func (b *nftablesBackend) Remove(ctx context.Context, _ string) error { return b.table.Remove(ctx) }

// Close implements Leftovers.
func (b *nftablesBackend) Close() error { return b.table.Close() }

// countRules calls add with each counter of a table, and returns the table.
func countRules(ctx context.Context, table *nftables.Table, add func(of rules.Counter, packets uint64)) (nftables.Snapshot, error) {
	s, err := table.Snapshot(ctx)
	for _, c := range s.Chains {
		for _, r := range c.Rules {
			add(rules.Counter{Chain: c.Name, Hash: r.Hash}, r.Packets)
		}
	}
	return s, err
}

// withoutChain notes which rules have no counter, because their policy has no chain.
func (c Counted) withoutChain(s *nftables.Snapshot, r *rules.Renderer, policies []*model.Policy) {
	for _, p := range policies {
		for _, d := range model.Directions() {
			if s.Chain(r.PolicyChain(p.ID, d)) != nil {
				continue
			}
			for _, rule := range p.Rules(d) {
				key := RuleKey{p.ID.String(), rule.Name}
				if h, asked := c[key]; asked {
					h.Uncounted = true
					c[key] = h
				}
			}
		}
	}
}

// countDrops calls add with each counter of the chains that drop denied packets.
func countDrops(ctx context.Context, table *nftables.Table, r *rules.Renderer, add func(of rules.Counter, packets uint64)) error {
	for _, c := range r.DropChains() {
		all, err := table.Rules(ctx, c.Name)
		if err != nil {
			return err
		}
		for _, rule := range all {
			add(rules.Counter{Chain: c.Name, Hash: rule.Hash}, rule.Packets)
		}
	}
	return nil
}
