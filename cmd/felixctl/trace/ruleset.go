package trace

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/iptables"
	"github.com/felixlike/felixlike/tables/nftables"
)

// Ruleset is one table of netfilter, prepared for walking.
type Ruleset struct {
	// place is its name for people, as "nftables inet felixlike".
	place string
	table *dump.Table
	// family is the only one that it sees, or zero.
	family model.Family
	chains map[string]*dump.Chain
	sets   map[string]*set
}

// set is a set with an index of its members.
type set struct {
	*dump.Set
	exact    map[model.Member]tables.Action
	networks map[int]map[netip.Prefix]model.Member
	// ranges are those of an interval set that are no prefixes, sorted.
	ranges []model.Member
}

// Rulesets prepares the tables of a node that are ours, or that our chains are in:
// the private tables of nftables, and those of iptables.
func Rulesets(s *dump.State) []*Ruleset {
	var all []*Ruleset
	shared := map[string]*set{}
	for _, one := range s.IPSets {
		shared[one.Name] = indexed(one)
	}
	for _, t := range s.Tables {
		r := &Ruleset{table: t, family: t.IPFamily(), chains: map[string]*dump.Chain{}, sets: map[string]*set{}}
		switch {
		case t.Dialect == dump.IPTables:
			r.place, r.sets = fmt.Sprintf("iptables IPv%s %s", r.family, t.Name), shared
		case t.Name == rules.ServicesTable:
			continue // the packet is one behind it
		case t.Family == "inet" && strings.HasPrefix(t.Name, nftables.DefaultTable):
			r.place = fmt.Sprintf("nftables %s %s", t.Family, t.Name)
			for _, one := range t.Sets {
				r.sets[one.Name] = indexed(one)
			}
		default:
			continue // another program's
		}
		for _, c := range t.Chains {
			r.chains[c.Name] = c
		}
		all = append(all, r)
	}
	return all
}

func indexed(s *dump.Set) *set {
	out := &set{Set: s, exact: map[model.Member]tables.Action{}, networks: map[int]map[netip.Prefix]model.Member{}}
	for _, e := range s.Elements {
		out.exact[e.Member] = e.Verdict
		if s.Kind != model.Networks {
			continue
		}
		if e.Last.IsValid() {
			out.ranges = append(out.ranges, e.Member)
			continue
		}
		bits := e.Prefix.Bits()
		if out.networks[bits] == nil {
			out.networks[bits] = map[netip.Prefix]model.Member{}
		}
		out.networks[bits][e.Prefix.Masked()] = e.Member
	}
	slices.SortFunc(out.ranges, model.Member.Compare)
	return out
}

// find returns the member that an address, or a triple, is found by.
func (s *set) find(m model.Member) (found model.Member, ok bool, err error) {
	if s.Kind == 0 {
		return m, false, fmt.Errorf("set %s is of the type %s, which felixlike does not write", s.Name, s.Type)
	}
	switch s.Kind {
	case model.Networks:
		m, ok = s.network(m.Prefix.Addr())
	case model.Senders:
		m, ok = s.sender(m)
	default:
		_, ok = s.exact[m]
	}
	if !ok && len(s.Foreign) > 0 {
		return m, false, fmt.Errorf("set %s has an element that cannot be read: %s", s.Name, s.Foreign[0])
	}
	return m, ok, nil
}

// number returns the number of a member that find has found.
func (s *set) number(m model.Member) uint32 {
	n, _ := s.exact[m].(tables.Number)
	return uint32(n)
}

// sender returns the prefix of the neighbour that has the address.
func (s *set) sender(m model.Member) (model.Member, bool) {
	for known := range s.exact {
		if known.MAC == m.MAC && known.Prefix.Contains(m.Prefix.Addr()) {
			return known, true
		}
	}
	return m, false
}

// network returns the range or the longest prefix of the set that has the address,
// and whether it is no exception.
func (s *set) network(a netip.Addr) (model.Member, bool) {
	behind, _ := slices.BinarySearchFunc(s.ranges, a, func(m model.Member, a netip.Addr) int {
		if m.Prefix.Addr().Compare(a) <= 0 {
			return -1
		}
		return 1
	})
	if behind > 0 && s.ranges[behind-1].Range().Contains(a) {
		return s.ranges[behind-1], true
	}
	for bits := a.BitLen(); bits >= 0; bits-- {
		prefixes := s.networks[bits]
		if prefixes == nil {
			continue
		}
		if p, err := a.Prefix(bits); err == nil {
			if m, ok := prefixes[p]; ok {
				return m, !m.Except
			}
		}
	}
	return model.AddressMember(a), false
}

// entry is a base chain in its ruleset.
type entry struct {
	ruleset *Ruleset
	chain   *dump.Chain
}

// base returns the base chains of all rulesets at a hook, in the order in which a
// packet of the family passes them.
func base(all []*Ruleset, at tables.HookPoint, f model.Family) []entry {
	var entries []entry
	for _, r := range all {
		if r.family != 0 && r.family != f {
			continue
		}
		for _, c := range r.table.Chains {
			if c.Hook != nil && c.Hook.Point == at.String() {
				entries = append(entries, entry{r, c})
			}
		}
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return int(a.chain.Hook.Priority) - int(b.chain.Hook.Priority) })
	return entries
}

// ours reports whether a chain is felixlike's own, and not a chain of the kernel or of
// another program with a rule of ours.
func (r *Ruleset) ours(c *dump.Chain) bool {
	return r.table.Dialect == dump.NFT || strings.HasPrefix(c.Name, iptables.Prefix)
}

// Behind splits a rule's comment into the policy and the rule of it that it names,
// as the renderer writes them: "networkpolicy/default/web ingress[0]". A comment that the kernel had no room for names none.
func Behind(comment string) (policy, rule string) {
	name, rule, found := strings.Cut(comment, " ")
	for _, d := range model.Directions() {
		if found && strings.HasPrefix(rule, d.String()+"[") && strings.Contains(rule, "]") {
			return name, rule
		}
	}
	return "", ""
}

func ruleText(r *dump.Rule) string {
	if r.Foreign != "" {
		return r.Foreign
	}
	return r.String()
}

func (r *Ruleset) unknown(c *dump.Chain, number int, reason string) error {
	return &UnknownRule{Place: r.place, Table: "chain " + c.Name, Number: number, Text: ruleText(&c.Rules[number-1]), Reason: reason}
}

func (r *Ruleset) missing(kind, name string) error {
	return fmt.Errorf("%s: there is no %s %s, which a rule names: the listing is incomplete", r.place, kind, name)
}
