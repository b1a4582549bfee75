package prove

import (
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// partition has all addresses of a family in classes. Addresses that are in the same sets, and lead to the same values of the same maps,
// are in one class.
type partition struct {
	family model.Family
	// bounds are the first addresses of intervals: no set begins or ends within one. class has the class of each interval.
	bounds []netip.Addr
	class  []int
	// first is an address of each class.
	first []netip.Addr
}

// owned is an interval that an element of a set has.
type owned struct{ interval, element int }

func newPartition(f model.Family, bounds []netip.Addr) *partition {
	slices.SortFunc(bounds, netip.Addr.Compare)
	bounds = slices.Compact(bounds)
	return &partition{family: f, bounds: bounds, class: make([]int, len(bounds))}
}

// interval returns the interval of an address.
func (p *partition) interval(a netip.Addr) int {
	at, found := slices.BinarySearchFunc(p.bounds, a, netip.Addr.Compare)
	return below(at, found)
}

// below returns the place of a value in a list of bounds.
func below(at int, found bool) int {
	if found {
		return at
	}
	return at - 1
}

// owners returns the intervals of a set of addresses or networks, with the elements that have them. The longest prefix decides; an
// exception has no address.
func (p *partition) owners(s *dump.Set) (all []owned) {
	order := make([]int, 0, len(s.Elements))
	for i := range s.Elements {
		if model.FamilyOf(s.Elements[i].Prefix.Addr()) == p.family {
			order = append(order, i)
		}
	}
	if s.Kind == model.Addresses {
		for _, i := range order {
			all = append(all, owned{p.interval(s.Elements[i].Prefix.Addr()), i})
		}
		slices.SortFunc(all, func(a, b owned) int { return a.interval - b.interval })
		return all
	}
	length := func(i int) int {
		if m := s.Elements[i].Member; !m.Last.IsValid() {
			return m.Prefix.Bits()
		}
		return 1 << 10 // ranges are asked first
	}
	slices.SortStableFunc(order, func(a, b int) int { return length(a) - length(b) })
	owner := map[int]int{}
	for _, i := range order {
		span := s.Elements[i].Range()
		for at, last := p.interval(span.From()), p.interval(span.To()); at <= last; at++ {
			if owner[at] = i; s.Elements[i].Except {
				delete(owner, at)
			}
		}
	}
	for at, i := range owner {
		all = append(all, owned{at, i})
	}
	slices.SortFunc(all, func(a, b owned) int { return a.interval - b.interval })
	return all
}

// divide divides classes: intervals of one class with different values, or with and without one, are of two classes from now on. Later values are
// comparable with earlier ones only within a call.
func (p *partition) divide(some []owned, value func(element int) any) {
	type key struct {
		class int
		value any
	}
	next := map[key]int{}
	for _, o := range some {
		k := key{p.class[o.interval], value(o.element)}
		if next[k] == 0 {
			next[k] = len(p.first) + len(next) + 1
		}
		p.class[o.interval] = next[k]
	}
	p.first = append(p.first, make([]netip.Addr, len(next))...)
}

// number numbers the classes in the order of their addresses. The first address with the lowest rank stands for a class.
func (p *partition) number(rank func(netip.Addr) int) {
	numbers := map[int]int{}
	p.first = nil
	for i, c := range p.class {
		n, known := numbers[c]
		if !known {
			n = len(p.first)
			numbers[c] = n
			p.first = append(p.first, p.bounds[i])
		} else if rank(p.bounds[i]) < rank(p.first[n]) {
			p.first[n] = p.bounds[i]
		}
		p.class[i] = n
	}
}

// classes returns the classes of intervals, sorted.
func (p *partition) classes(some []owned) []int {
	all := make([]int, len(some))
	for i, o := range some {
		all[i] = p.class[o.interval]
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// within returns the intervals from one address to another one.
func (p *partition) within(first, last netip.Addr) (all []owned) {
	for at, end := p.interval(first), p.interval(last); at <= end; at++ {
		all = append(all, owned{interval: at})
	}
	return all
}

// divideBy divides the addresses by all that the rules and sets of a state ask of them.
func (s *space) divideBy(state *dump.State) {
	for _, f := range state.Flows {
		s.divideByFlow(f)
	}
	sets := slices.Clone(state.IPSets)
	for _, t := range state.Tables {
		sets = append(sets, t.Sets...)
		for _, c := range t.Chains {
			for i := range c.Rules {
				for _, m := range c.Rules[i].Matches {
					switch m := m.(type) {
					case tables.MatchPrefix:
						s.dividePrefix(m.Prefix)
					case tables.MatchConnSource:
						s.dividePrefix(m.Prefix)
					}
				}
			}
		}
	}
	for _, set := range sets {
		switch set.Kind {
		case model.Addresses, model.Networks:
			s.divide(s.owners(set), func(i int) any { return set.Elements[i].Verdict })
		case model.AddressPorts:
			at := map[string]*dump.Set{}
			for _, e := range set.Elements {
				key := fmt.Sprint(e.Protocol, e.Port)
				if at[key] == nil {
					at[key] = &dump.Set{Kind: model.Addresses}
				}
				at[key].Elements = append(at[key].Elements, e)
			}
			for _, one := range at {
				s.divide(s.owners(one), func(int) any { return nil })
			}
		case model.Loops:
			for _, e := range set.Elements {
				s.dividePrefix(e.Prefix)
			}
		case model.Senders:
			for _, e := range set.Elements {
				s.dividePrefix(e.Prefix)
			}
		}
	}
}

func (s *space) dividePrefix(p netip.Prefix) {
	span := netipx.RangeOfPrefix(p)
	s.divideRange(span.From(), span.To())
}

func (s *space) divideRange(first, last netip.Addr) {
	if model.FamilyOf(first) == s.family {
		s.divide(s.within(first, last), func(int) any { return nil })
	}
}
