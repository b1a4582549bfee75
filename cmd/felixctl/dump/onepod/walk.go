package onepod

import (
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/iptables"
)

// walk follows the packets of a pod through the chains of one table.
type walk struct {
	from *dump.Table
	// shared are the ipsets.
	shared    []*dump.Set
	addresses []netip.Addr
	// used are the sets that rules look up, seen the chains and verdict maps that were followed.
	used, seen map[string]bool
	chains     []*dump.Chain
	maps       []*dump.Set
}

// table returns the part of the table for the pod: from the chains that dispatch addresses.
func (w *walk) table() *dump.Table {
	out := &dump.Table{Dialect: w.from.Dialect, Family: w.from.Family, Name: w.from.Name}
	for _, root := range []struct {
		name string
		d    model.Direction
	}{{rules.ChainEgress, model.Egress}, {rules.ChainToPods, model.Ingress}, {rules.ChainOwnNode, model.Egress}} {
		if w.from.Dialect == dump.IPTables {
			root.name = iptables.KernelName(root.name)
		}
		w.follow(root.name, root.d)
	}
	out.Chains, out.Sets = w.chains, w.maps
	for _, set := range w.from.Sets {
		if w.used[set.Name] {
			out.Sets = append(out.Sets, set)
		}
	}
	return out
}

// dispatch adds a verdict map with the entries for the pod alone, and follows these.
func (w *walk) dispatch(name string, d model.Direction) {
	set := w.from.Set(name)
	if set == nil || w.seen[name] {
		return
	}
	w.seen[name] = true
	out := *set
	out.Elements, out.Foreign = nil, nil
	for _, e := range set.Elements {
		if e.Prefix.IsSingleIP() && slices.Contains(w.addresses, e.Prefix.Addr()) {
			out.Elements = append(out.Elements, e)
			w.follow(tables.Target(e.Verdict), d)
		}
	}
	w.maps = append(w.maps, &out)
}

// follow adds the rules of a chain that packets of the pod can match, and of the chains that
// they lead to.
func (w *walk) follow(name string, d model.Direction) {
	chain := w.from.Chain(name)
	if chain == nil || w.seen[name] {
		return
	}
	w.seen[name] = true
	out := *chain
	out.Rules = nil
	place := len(w.chains)
	w.chains = append(w.chains, &out)
	for _, r := range chain.Rules {
		if !w.possible(&r, sideOf(d)) {
			continue
		}
		out.Rules = append(out.Rules, r)
		for _, m := range r.Matches {
			for set := range tables.SetsOf(m) {
				w.used[set] = true
			}
		}
		w.follow(tables.Target(r.Action), d)
		if to, ok := r.Action.(tables.Dispatch); ok {
			w.dispatch(to.Map, d)
		}
		if w.ends(&r, sideOf(d)) {
			break
		}
	}
	if len(out.Rules) == 0 {
		w.chains = slices.Delete(w.chains, place, place+1)
	}
}

// sideOf returns the end of a packet at which the pod is.
func sideOf(d model.Direction) tables.Side {
	if d == model.Egress {
		return tables.Source
	}
	return tables.Destination
}

// possible reports whether a packet with an address of the pod at that side can match the rule.
func (w *walk) possible(r *dump.Rule, side tables.Side) bool {
	return slices.ContainsFunc(w.addresses, func(a netip.Addr) bool {
		if f := r.Family(); f != 0 && f != model.FamilyOf(a) {
			return false
		}
		return !slices.ContainsFunc(r.Matches, func(m tables.Match) bool {
			switch m := m.(type) {
			case tables.MatchPrefix:
				return m.Side == side && m.Prefix.Contains(a) == m.Negated
			case tables.MatchSet:
				return m.Side == side && !w.holds(m.Set, a)
			}
			return false
		})
	})
}

// holds reports whether a set may have the address: true if the set is not known whole.
func (w *walk) holds(name string, a netip.Addr) bool {
	set := w.from.Set(name)
	if i := slices.IndexFunc(w.shared, func(s *dump.Set) bool { return s.Name == name }); set == nil && i >= 0 {
		set = w.shared[i]
	}
	return set == nil || len(set.Foreign) > 0 || slices.ContainsFunc(set.Elements, func(e dump.Element) bool {
		return e.Except || e.Last.IsValid() || e.Prefix.Contains(a)
	})
}

// ends reports whether every packet of the pod leaves the chain by the rule: the leaf of a prefix
// tree.
func (w *walk) ends(r *dump.Rule, side tables.Side) bool {
	if len(r.Matches) != 1 {
		return false
	}
	switch r.Action.(type) {
	case tables.Goto, tables.Accept, tables.Drop:
		m, ok := r.Matches[0].(tables.MatchPrefix)
		return ok && m.Side == side && !m.Negated && m.Prefix.IsSingleIP()
	}
	return false
}
