package backend

import (
	"context"
	"errors"
	"os/exec"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/ipsets/kernel"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/iptables"
)

func newIPTables(c Config, try scratch) *iptablesBackend {
	x := xtables{
		table: iptables.New(iptables.Options{Variant: c.Variant, NetNS: c.NetNS}),
		sets:  kernel.New(kernel.Options{NetNS: c.NetNS}),
	}
	r, all := IPTablesManagers(c, x.table, x.sets)
	b := &iptablesBackend{xtables: x, at: c, try: try, collisions: newCollisions(all)}
	b.denials = nflogDenials{c, try, r, b.counters}
	name := config.IPTables + "-" + c.Variant.String()
	b.common = common{name: name, renderer: r, stage: Stage{
		Name: name, Required: true, Managers: all, Timeout: policyTimeout, Invalidate: b.invalidate,
		Watch: x.table.Watch, WatchToo: x.sets.Watch, WatchIncomplete: true,
		Apply: func(ctx context.Context) (Applied, error) { return b.collisions.apply(ctx, b.xtables.apply) },
	}}
	return b
}

// iptablesBackend judges in iptables of one variant, with the kernel's ipsets.
type iptablesBackend struct {
	common
	xtables
	at         Config
	try        scratch
	collisions *collisions
	denials    Denials
}

func (b *iptablesBackend) invalidate() {
	b.table.Invalidate()
	b.sets.Invalidate()
}

// counters calls add with each counter.
func (b *iptablesBackend) counters(ctx context.Context, add func(of rules.Counter, packets uint64)) error {
	return iptables.Counters(ctx, b.at.Variant, b.at.NetNS, func(chain, hash string, packets uint64) {
		add(rules.Counter{Chain: chain, Hash: hash}, packets)
	})
}

// PrepareBeside implements Follower. Both variants use the same sets: the backend in force owns
// them.
func (b *iptablesBackend) PrepareBeside(other string) { b.sets.KeptByOthers(usesSets(other)) }

// Activate implements Follower.
func (b *iptablesBackend) Activate() { b.sets.KeptByOthers(false) }

// Hits implements Observer.
func (b *iptablesBackend) Hits(ctx context.Context, counted Counted, policies []*model.Policy) error {
	return b.counters(ctx, newCounterKeys(b.renderer, policies).addTo(counted))
}

// Denials implements Observer.
func (b *iptablesBackend) Denials() Denials { return b.denials }

// Logs implements Observer.
func (b *iptablesBackend) Logs() Reports { return nflogLogs{b.at, b.try} }

// Left implements Leftovers.
func (b *iptablesBackend) Left(ctx context.Context) (bool, error) { return b.table.Exists(ctx) }

// Remove implements Leftovers: rules go before the sets that they name. Both variants use
// the same sets, also if the tools of one variant are not installed.
func (b *iptablesBackend) Remove(ctx context.Context, keep string) error {
	err := b.table.Remove(ctx)
	if err != nil && !errors.Is(err, exec.ErrNotFound) || usesSets(keep) {
		return err
	}
	return errors.Join(err, b.sets.Remove(ctx))
}

// Close implements Leftovers.
func (b *iptablesBackend) Close() error { return b.sets.Close() }

// xtables is the two drivers of the iptables backend.
type xtables struct {
	table *iptables.Table
	sets  *kernel.Sets
}

// apply makes sets before the first rule that names them, and removes them after the last
// one. While the rules fail, it removes no set.
func (x *xtables) apply(ctx context.Context) (Applied, error) {
	updated, err := x.sets.ApplyUpdates(ctx)
	all := applied(updated)
	if err != nil {
		return all, err
	}
	// The table reports refused sets, with the chains that are closed because of them.
	x.table.QuarantineSets(updated.Refused)
	all.Refused = nil
	programmed, err := x.table.Apply(ctx)
	all = all.and(programmed)
	if err != nil {
		return all, err
	}
	deleted, err := x.sets.ApplyDeletions(ctx)
	deleted.Refused, deleted.Elements = nil, 0 // the same as before
	return all.and(deleted), err
}

// usesSets reports whether the backend of that name uses the kernel's ipsets.
func usesSets(name string) bool { return name == config.IPTablesLegacy || name == config.IPTablesNFT }
