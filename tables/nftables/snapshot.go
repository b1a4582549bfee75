package nftables

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// Snapshot is the table as the kernel holds it, for people and status.
// Everything in it is sorted by name, rules by position.
type Snapshot struct {
	Table string `json:"table"`
	// Exists is false if the kernel has no such table; the rest is empty then.
	Exists bool            `json:"exists"`
	Chains []ChainSnapshot `json:"chains,omitempty"`
	Sets   []SetSnapshot   `json:"sets,omitempty"`
	Maps   []MapSnapshot   `json:"maps,omitempty"`
}

// ChainSnapshot is one chain.
type ChainSnapshot struct {
	Name string `json:"name"`
	// Hook says where a base chain sits, as "filter hook forward priority 0"; it is
	// empty for other chains.
	Hook  string         `json:"hook,omitempty"`
	Rules []RuleSnapshot `json:"rules,omitempty"`
}

// RuleSnapshot is one rule.
type RuleSnapshot = kernel.RuleSnapshot

// SetSnapshot is one set. Kind is empty for a foreign set.
type SetSnapshot struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	Family string `json:"family"`
	// Members counts the members; a prefix of an interval set is one.
	Members int `json:"members"`
}

// MapSnapshot is one verdict map with its entries, sorted by address.
type MapSnapshot struct {
	Name    string     `json:"name"`
	Family  string     `json:"family"`
	Entries []MapEntry `json:"entries,omitempty"`
}

// MapEntry is one entry of a verdict map.
type MapEntry struct {
	Address string `json:"address"`
	Verdict string `json:"verdict"`
}

// Chain returns the named chain, or nil.
func (s *Snapshot) Chain(name string) *ChainSnapshot {
	for i := range s.Chains {
		if s.Chains[i].Name == name {
			return &s.Chains[i]
		}
	}
	return nil
}

// Snapshot reads the table from the kernel over a connection of its own; it
// changes nothing and may be called while Apply runs elsewhere.
func (t *Table) Snapshot(ctx context.Context) (_ Snapshot, err error) {
	out := Snapshot{Table: t.options.Table}
	if err := ctx.Err(); err != nil {
		return out, err
	}
	c, err := kernel.Dial(t.options.dial(t.digests.Seed, t.answerBuffer))
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	rules := map[string][]RuleSnapshot{}
	state, err := c.ReadWith(t.options.Table, func(chains map[string]*kernel.Chain) error {
		return c.ReadRuleSnapshots(t.options.Table, chains, rules)
	})
	if err != nil || !state.Exists {
		return out, err
	}
	out.Exists = true
	for name, k := range state.Chains {
		out.Chains = append(out.Chains, ChainSnapshot{Name: name, Hook: k.Base.String(), Rules: rules[name]})
	}
	for name, k := range state.Sets {
		out.addSet(name, k)
	}
	slices.SortFunc(out.Chains, func(a, b ChainSnapshot) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(out.Sets, func(a, b SetSnapshot) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(out.Maps, func(a, b MapSnapshot) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// Missing reports whether an error of a read says that the kernel has no nf_tables, or not the table's family: then there is no table. Without
// nfnetlink there is no such protocol. nfnetlink says EINVAL if nobody has registered the subsystem.
func Missing(err error) bool {
	return slices.ContainsFunc([]error{unix.EPROTONOSUPPORT, unix.EINVAL, unix.EOPNOTSUPP, unix.EAFNOSUPPORT}, func(code error) bool { return errors.Is(err, code) })
}

// Rules reads the rules of one chain, over a connection of its own, and may be called
// while Apply runs elsewhere. A chain that is not there has none.
func (t *Table) Rules(ctx context.Context, chain string) (_ []RuleSnapshot, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := kernel.Dial(t.options.dial(t.digests.Seed, t.answerBuffer))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return c.ReadChainSnapshot(t.options.Table, chain)
}

func (s *Snapshot) addSet(name string, k *kernel.Set) {
	if !k.Shape.Verdicts {
		set := SetSnapshot{Name: name, Members: len(k.Members)}
		if k.Shape != (kernel.Shape{}) {
			set.Kind, set.Family = k.Shape.Kind.String(), k.Shape.Family.String()
		}
		s.Sets = append(s.Sets, set)
		return
	}
	m := MapSnapshot{Name: name, Family: k.Shape.Family.String()}
	entries := make([]kernel.Change, 0, len(k.Members))
	for member, verdict := range k.Members {
		entries = append(entries, kernel.Change{Member: member, Verdict: verdict})
	}
	slices.SortFunc(entries, kernel.Change.Compare)
	for _, e := range entries {
		m.Entries = append(m.Entries, MapEntry{Address: e.Member.String(), Verdict: e.Verdict.String()})
	}
	s.Maps = append(s.Maps, m)
}
