package nftables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/tables"
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
type RuleSnapshot struct {
	Handle uint64 `json:"handle"`
	// Hash is the hash in the comment, empty if the rule is not ours; Comment
	// is what the comment says besides.
	Hash    string `json:"hash"`
	Comment string `json:"comment"`
	// Verdict is the rule's verdict, as "accept" or "goto <chain>"; it is empty
	// if the rule has none of its own (marks, verdict maps, masquerade).
	Verdict string `json:"verdict,omitempty"`
	// Packets and Bytes are what its counter has counted.
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// SetSnapshot is one set. Kind is empty if the set is none of ours.
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
	c, err := dial(t.options, t.digests.Seed)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	rules := map[string][]RuleSnapshot{}
	state, err := c.readWith(t.options.Table, func(chains map[string]*kernelChain) error {
		return c.snapshotRules(t.options.Table, chains, rules)
	})
	if err != nil || !state.exists {
		return out, err
	}
	out.Exists = true
	for name, k := range state.chains {
		out.Chains = append(out.Chains, ChainSnapshot{Name: name, Hook: k.base.String(), Rules: rules[name]})
	}
	for name, k := range state.sets {
		out.addSet(name, k)
	}
	slices.SortFunc(out.Chains, func(a, b ChainSnapshot) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(out.Sets, func(a, b SetSnapshot) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(out.Maps, func(a, b MapSnapshot) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// Rules reads the rules of one chain, over a connection of its own, and may be called
// while Apply runs elsewhere. A chain that is not there has none.
func (t *Table) Rules(ctx context.Context, chain string) (_ []RuleSnapshot, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := dial(t.options, t.digests.Seed)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	var rules []RuleSnapshot
	err = c.retry(unix.NFT_MSG_GETRULE, named(unix.NFTA_RULE_TABLE, t.options.Table, unix.NFTA_RULE_CHAIN, chain), func() { rules = nil }, func(b []byte) {
		_, r := decodeRule(b)
		rules = append(rules, r)
	})
	if errors.Is(err, unix.ENOENT) {
		err = nil
	}
	return rules, err
}

func (s *Snapshot) addSet(name string, k *kernelSet) {
	if !k.shape.verdicts {
		set := SetSnapshot{Name: name, Members: len(k.members)}
		if k.shape != (shape{}) {
			set.Kind, set.Family = k.shape.kind.String(), k.shape.family.String()
		}
		s.Sets = append(s.Sets, set)
		return
	}
	m := MapSnapshot{Name: name, Family: k.shape.family.String()}
	entries := make([]change, 0, len(k.members))
	for member, verdict := range k.members {
		entries = append(entries, change{member, verdict})
	}
	slices.SortFunc(entries, change.compare)
	for _, e := range entries {
		m.Entries = append(m.Entries, MapEntry{Address: e.member.String(), Verdict: e.verdict.String()})
	}
	s.Maps = append(s.Maps, m)
}

// String describes the hook in the kernel's terms.
func (b baseHook) String() string {
	if b == (baseHook{}) {
		return ""
	}
	hook := fmt.Sprint(b.hook)
	for _, p := range []tables.HookPoint{tables.HookForward, tables.HookPostrouting, tables.HookPrerouting} {
		if base(&tables.Hook{Point: p}).hook == b.hook {
			hook = p.String()
		}
	}
	return fmt.Sprintf("%s hook %s priority %d", b.chainType, hook, b.priority)
}

func (c *conn) snapshotRules(table string, chains map[string]*kernelChain, out map[string][]RuleSnapshot) error {
	clear(out)
	return c.dumpRules(table, chains, func(filter []netlink.Attribute, chain string) error {
		start := func() {
			if delete(out, chain); chain == "" {
				clear(out)
			}
		}
		return c.retry(unix.NFT_MSG_GETRULE, filter, start, func(b []byte) {
			chain, r := decodeRule(b)
			out[chain] = append(out[chain], r)
		})
	})
}

func decodeRule(b []byte) (chain string, r RuleSnapshot) {
	for kind, v := range nfnetlink.Attributes(b) {
		switch kind {
		case unix.NFTA_RULE_CHAIN:
			chain = nfnetlink.Text(v)
		case unix.NFTA_RULE_HANDLE:
			r.Handle = nfnetlink.Uint64(v)
		case unix.NFTA_RULE_USERDATA:
			r.Comment = string(commentIn(v))
			if r.Hash = tables.HashInComment(r.Comment); r.Hash != "" {
				r.Comment = r.Comment[min(len(r.Comment), len(tables.CommentPrefix)+len(r.Hash)+1):]
			}
		case unix.NFTA_RULE_EXPRESSIONS:
			for _, e := range nfnetlink.Attributes(v) {
				r.decodeExpression(e)
			}
		}
	}
	return chain, r
}

// decodeExpression takes the counter and the verdict out of the expressions.
func (r *RuleSnapshot) decodeExpression(b []byte) {
	var name string
	for kind, v := range nfnetlink.Attributes(b) {
		switch {
		case kind == unix.NFTA_EXPR_NAME:
			name = nfnetlink.Text(v)
		case kind == unix.NFTA_EXPR_DATA && name == "counter":
			for kind, n := range nfnetlink.Attributes(v) {
				switch kind {
				case unix.NFTA_COUNTER_PACKETS:
					r.Packets = nfnetlink.Uint64(n)
				case unix.NFTA_COUNTER_BYTES:
					r.Bytes = nfnetlink.Uint64(n)
				}
			}
		case kind == unix.NFTA_EXPR_DATA && name == "immediate":
			for kind, data := range nfnetlink.Attributes(v) {
				if kind == unix.NFTA_IMMEDIATE_DATA {
					r.decodeImmediate(data)
				}
			}
		}
	}
}

func (r *RuleSnapshot) decodeImmediate(b []byte) {
	for kind, v := range nfnetlink.Attributes(b) {
		if kind != unix.NFTA_DATA_VERDICT {
			continue
		}
		if a := decodeVerdict(v); a != nil {
			r.Verdict = a.String()
		}
	}
}
