package compare

import (
	"cmp"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/iptables"
	"github.com/felixlike/felixlike/tables/nftables"
)

// Options choose the parts of two states to compare.
type Options struct {
	// OnlyOurs leaves out the objects of other programs.
	OnlyOurs bool
	// Counters compares the counters of rules and flows, too.
	Counters bool
	// Elements chooses how sets are compared.
	Elements dump.Elements
	// Hashes keeps those of rules, which follow from the rules.
	Hashes bool
}

// Canonical returns the compared parts of a state, in one order.
func Canonical(s *dump.State, o Options) *dump.State {
	out := &dump.State{}
	for _, t := range s.Tables {
		if t = table(t, o); t != nil {
			out.Tables = append(out.Tables, t)
		}
	}
	slices.SortStableFunc(out.Tables, func(a, b *dump.Table) int {
		return cmp.Or(cmp.Compare(a.Dialect, b.Dialect), cmp.Compare(a.Family, b.Family), cmp.Compare(a.Name, b.Name))
	})
	for _, set := range s.IPSets {
		if !o.OnlyOurs || strings.HasPrefix(set.Name, ipsets.KernelPrefix) {
			out.IPSets = append(out.IPSets, canonicalSet(set))
		}
	}
	sortSets(out.IPSets)
	for _, f := range s.Flows {
		if !learned(f) && (!o.OnlyOurs || owned(f)) {
			out.Flows = append(out.Flows, flow(f, o))
		}
	}
	out.Flows = sortedFlows(out.Flows)
	return out
}

// sortedFlows sorts by table, priority and match.
func sortedFlows(flows []*flowtext.Flow) []*flowtext.Flow {
	type keyed struct {
		flow *flowtext.Flow
		text string
	}
	all := make([]keyed, len(flows))
	for i, f := range flows {
		all[i] = keyed{f, f.String()}
	}
	slices.SortStableFunc(all, func(a, b keyed) int {
		return cmp.Or(cmp.Compare(a.flow.Table, b.flow.Table), -cmp.Compare(a.flow.Priority, b.flow.Priority), cmp.Compare(a.text, b.text))
	})
	for i, k := range all {
		flows[i] = k.flow
	}
	return flows
}

// learned reports whether the flow comes and goes with traffic.
func learned(f *flowtext.Flow) bool {
	return f.Owner() == pipeline.AssociationOwner || f.Owner() == pipeline.AffinityOwner || f.Owner() == pipeline.TouchOwner
}

func owned(f *flowtext.Flow) bool {
	return f.Owner() == pipeline.Owner || f.Owner() == pipeline.PolicyOwner
}

// flow keeps the owner of the cookie: the rest of it follows from the flow.
func flow(f *flowtext.Flow, o Options) *flowtext.Flow {
	out := *f
	out.Line, out.Cookie = 0, uint64(f.Owner())<<48
	if !o.Counters {
		out.Packets, out.Bytes = 0, 0
	}
	return &out
}

func sortSets(sets []*dump.Set) {
	slices.SortStableFunc(sets, func(a, b *dump.Set) int { return strings.Compare(a.Name, b.Name) })
}

func canonicalSet(s *dump.Set) *dump.Set {
	out := *s
	out.Line = 0
	if out.Elements, out.Foreign = slices.Clone(s.Elements), slices.Clone(s.Foreign); s.Learned() {
		out.Elements, out.Foreign = nil, nil
	}
	slices.SortFunc(out.Elements, dump.Element.Compare)
	slices.Sort(out.Foreign)
	return &out
}

// table returns the part of a table that is compared, or nil if nothing is.
func table(t *dump.Table, o Options) *dump.Table {
	out := &dump.Table{Dialect: t.Dialect, Family: t.Family, Name: t.Name}
	if o.OnlyOurs && t.Dialect == dump.NFT && !ourTable(t) {
		return nil
	}
	shared := o.OnlyOurs && t.Dialect == dump.IPTables
	for _, c := range t.Chains {
		if c = chain(c, o, shared); c != nil {
			out.Chains = append(out.Chains, c)
		}
	}
	if shared && len(out.Chains) == 0 {
		return nil
	}
	slices.SortStableFunc(out.Chains, func(a, b *dump.Chain) int { return strings.Compare(a.Name, b.Name) })
	for _, s := range t.Sets {
		out.Sets = append(out.Sets, canonicalSet(s))
	}
	sortSets(out.Sets)
	if !o.OnlyOurs {
		out.Foreign = slices.Sorted(slices.Values(t.Foreign))
	}
	return out
}

// ourTable reports whether a table of nftables is private to us.
func ourTable(t *dump.Table) bool {
	return (t.Family == "inet" || t.Family == "bridge") && (t.Name == nftables.DefaultTable || strings.HasPrefix(t.Name, nftables.DefaultTable+"-"))
}

// chain returns the compared part of a chain. Of a shared table these are our chains,
// and the jumps to them in the kernel's own chains.
func chain(c *dump.Chain, o Options, shared bool) *dump.Chain {
	out := &dump.Chain{Name: c.Name, Hook: c.Hook, Policy: c.Policy}
	ours := strings.HasPrefix(c.Name, iptables.Prefix)
	for _, r := range c.Rules {
		if shared && !ours && !r.Ours() && !strings.HasPrefix(tables.Target(r.Action), iptables.Prefix) {
			continue
		}
		r.Line = 0
		if !o.Counters {
			r.Packets, r.Bytes = 0, 0
		}
		if !o.Hashes {
			r.Hash = ""
		}
		out.Rules = append(out.Rules, r)
	}
	if shared && !ours {
		if out.Policy = ""; len(out.Rules) == 0 {
			return nil
		}
		out.Hook = nil
	}
	return out
}
