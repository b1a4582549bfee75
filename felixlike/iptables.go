package felixlike

import (
	"context"
	"errors"
	"os/exec"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/ipsets/kernel"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/iptables"
)

// NewIPTables returns the backend in iptables of the variant, with the
// kernel's ipsets, for the node of that name. With masquerade, pods are hidden
// behind the node's address on the way out of the cluster.
func NewIPTables(node string, masquerade bool, variant iptables.Variant) Backend {
	return newIPTables(Choice{Node: node, Masquerade: masquerade, Variant: variant})
}

func newIPTables(c Choice) Backend {
	x := &xtables{
		table: iptables.New(iptables.Options{Variant: c.Variant, NetNS: c.NetNS}),
		sets:  kernel.New(kernel.Options{NetNS: c.NetNS}),
	}
	r, all := IPTablesManagers(c, x.table, x.sets)
	collisions := newCollisions(all)
	name := config.IPTables + "-" + c.Variant.String()
	return Backend{
		Name: name, Renderer: r, Left: x.table.Exists, Remove: x.remove, Close: x.sets.Close,
		Hits: func(ctx context.Context, counted Counted, _ map[policyflows.RuleID]RuleKey) error {
			return iptables.Counters(ctx, c.Variant, c.NetNS, counted.add)
		},
		Denials: nflogDenials(c, func(ctx context.Context, add func(comment string, packets uint64)) error {
			return iptables.Counters(ctx, c.Variant, c.NetNS, add)
		}),
		// Both variants have the same sets: the backend that decides keeps them.
		Beside:  func(other string) { x.sets.KeptByOthers(usesSets(other)) },
		Decides: func() { x.sets.KeptByOthers(false) },
		Stage: Stage{
			Name: name, Required: true, Managers: all, Timeout: 60 * time.Second,
			Invalidate: func() { x.table.Invalidate(); x.sets.Invalidate() },
			Watch:      x.table.Watch, WatchToo: x.sets.Watch, Overlooks: true,
			Apply: func(ctx context.Context) (Applied, error) { return collisions.apply(ctx, x.apply) },
		},
	}
}

// xtables is the two drivers of the iptables backend.
type xtables struct {
	table *iptables.Table
	sets  *kernel.Sets
}

// apply has sets exist before the first rule that names them, and go after the
// last. While the rules fail, no set goes.
func (x *xtables) apply(ctx context.Context) (Applied, error) {
	updated, err := x.sets.ApplyUpdates(ctx)
	all := applied(updated)
	if err != nil {
		return all, err
	}
	// The table tells of refused sets with the chains that stand closed for them.
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

// and adds what another driver of the same stage did.
func (a Applied) and(r tables.Result) Applied {
	b := applied(r)
	return Applied{
		Writes: a.Writes + b.Writes, Full: a.Full || b.Full, Saves: a.Saves + b.Saves, Restores: a.Restores + b.Restores,
		Rules: a.Rules + b.Rules, Elements: a.Elements + b.Elements,
		Refused: append(a.Refused, b.Refused...), Repaired: append(a.Repaired, b.Repaired...),
	}
}

// remove removes the rules before the sets that they name. Both variants use
// the same sets, also where the tools of one are not there.
func (x *xtables) remove(ctx context.Context, keep string) error {
	err := x.table.Remove(ctx)
	if err != nil && !errors.Is(err, exec.ErrNotFound) || usesSets(keep) {
		return err
	}
	return errors.Join(err, x.sets.Remove(ctx))
}

// usesSets reports whether the backend of that name uses the kernel's ipsets.
func usesSets(name string) bool { return name == config.IPTablesLegacy || name == config.IPTablesNFT }
