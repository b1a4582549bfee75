package felixlike

import (
	"context"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables"
)

// Backend is what decides policy: the stage that programs it, with its
// managers, and the renderer that names its chains.
type Backend struct {
	Name string
	// Place is where it judges packets.
	Place Place
	// Why says how it was chosen, where that was left to what is on the node.
	Why      string
	Stage    Stage
	Renderer *rules.Renderer
	// Remove removes all that a backend of this kind owns, by its names, whoever
	// left it, but for what the backend named keep uses as well.
	Remove func(ctx context.Context, keep string) error
	// Left reports whether a backend of this kind has left anything here.
	Left func(ctx context.Context) (bool, error)
	// Forwarded tells the backend which attachments have forwarding flows now, and
	// reports whether its stage has something to do about that. It may be nil.
	Forwarded func(has func(*model.Attachment) bool) bool
	// Hits adds what the rules have counted to the entries that are there; rules are
	// all that the node has. It may be called while the stage runs.
	Hits func(ctx context.Context, counted Counted, rules map[policyflows.RuleID]RuleKey) error
	// Denials is how it tells of what it denies.
	Denials Denials
	// Unbounded returns the reason if the rate of new connections of pods has no limit, or
	// nil. The function is nil for a backend that needs no limit.
	Unbounded func() error
	// Beside tells the backend by name which one decides while it is built. It is
	// called before the stage runs, and may be nil.
	Beside func(other string)
	// Decides tells the backend that no other one decides beside it any more. It
	// is called while the stage does not run, and may be nil.
	Decides func()
	// Close gives back what the backend has opened; what it programmed stays.
	Close func() error
}

func (b Backend) beside(other string) {
	if b.Beside != nil {
		b.Beside(other)
	}
}

func (b Backend) decides() {
	if b.Decides != nil {
		b.Decides()
	}
}

func (b Backend) forwarded(has func(*model.Attachment) bool) bool {
	return b.Forwarded != nil && has != nil && b.Forwarded(has)
}

func (b Backend) close() error {
	if b.Close == nil {
		return nil
	}
	return b.Close()
}

// NewNFTables returns the backend in one private nftables table, for the node
// of that name. With masquerade, pods are hidden behind the node's address on
// the way out of the cluster.
func NewNFTables(node string, masquerade bool) Backend {
	return newNFTables(Choice{Node: node, Masquerade: masquerade})
}

func newNFTables(c Choice) Backend {
	table := nftables.New(nftables.Options{NetNS: c.NetNS})
	r, all := NFTablesManagers(c, table)
	collisions := newCollisions(all)
	return Backend{
		Name: config.NFTables, Renderer: r, Close: table.Close,
		Left: func(ctx context.Context) (bool, error) {
			s, err := table.Snapshot(ctx)
			return s.Exists, err
		},
		Remove: func(ctx context.Context, _ string) error { return table.Remove(ctx) },
		Hits: func(ctx context.Context, counted Counted, _ map[policyflows.RuleID]RuleKey) error {
			s, err := table.Snapshot(ctx)
			for _, c := range s.Chains {
				for _, r := range c.Rules {
					counted.add(r.Comment, r.Packets)
				}
			}
			return err
		},
		Denials: nflogDenials(c, func(ctx context.Context, add func(comment string, packets uint64)) error {
			return countDrops(ctx, table, rules.DropChains(), add)
		}),
		// While another backend decides, nothing needs to be guarded.
		Decides: func() { table.SetGuard(rules.Guard(model.GatewayPort)) },
		Stage: Stage{
			Name: config.NFTables, Required: true, Managers: all, Timeout: 60 * time.Second,
			Invalidate: table.Invalidate, Watch: table.Watch,
			Apply: func(ctx context.Context) (Applied, error) {
				return collisions.apply(ctx, func(ctx context.Context) (Applied, error) {
					r, err := table.Apply(ctx)
					return applied(r), err
				})
			},
		},
	}
}

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

// applied is what a stage tells of a table's result.
func applied(r tables.Result) Applied {
	return Applied{
		Writes: r.Messages, Full: r.FullRead, Saves: r.Saves, Restores: r.Restores, Rules: r.Rules, Elements: r.Elements,
		Refused: r.Refused, Repaired: r.Repaired,
	}
}
