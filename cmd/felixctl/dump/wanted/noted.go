package wanted

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/ipsets/kernel"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// noted is a driver that only notes what is wanted of it.
type noted struct {
	chains map[string]tables.Chain
	sets   map[string]*notedSet
}

// notedSet is a set or a verdict map.
type notedSet struct {
	ipsets.Set
	isMap   bool
	numbers bool
	members map[model.Member]tables.Action
}

func newNoted() *noted {
	return &noted{chains: map[string]tables.Chain{}, sets: map[string]*notedSet{}}
}

// UpdateChain implements tables.Table.
func (n *noted) UpdateChain(c tables.Chain) { n.chains[c.Name] = c }

// RemoveChain implements tables.Table.
func (n *noted) RemoveChain(name string) { delete(n.chains, name) }

// CreateSet implements ipsets.Sets.
func (n *noted) CreateSet(s ipsets.Set) { n.set(s.Name).Set = s }

// RemoveSet implements ipsets.Sets.
func (n *noted) RemoveSet(name string) { delete(n.sets, name) }

// AddMembers implements ipsets.Sets.
func (n *noted) AddMembers(name string, members []model.Member) {
	for _, m := range members {
		n.set(name).members[m] = nil
	}
}

// RemoveMembers implements ipsets.Sets.
func (n *noted) RemoveMembers(name string, members []model.Member) {
	for _, m := range members {
		delete(n.set(name).members, m)
	}
}

// CreateMap implements tables.VerdictMaps.
func (n *noted) CreateMap(name string, f model.Family) {
	s := n.set(name)
	s.Set, s.isMap = ipsets.Set{Name: name, Kind: model.Addresses, Family: f}, true
}

// SetVerdict implements tables.VerdictMaps.
func (n *noted) SetVerdict(name string, a netip.Addr, verdict tables.Action) {
	n.set(name).members[model.AddressMember(a)] = verdict
}

// RemoveVerdict implements tables.VerdictMaps.
func (n *noted) RemoveVerdict(name string, a netip.Addr) {
	delete(n.set(name).members, model.AddressMember(a))
}

// CreateNumberMap implements tables.NumberMaps.
func (n *noted) CreateNumberMap(name string, kind model.GroupKind, f model.Family) {
	s := n.set(name)
	s.Set, s.numbers = ipsets.Set{Name: name, Kind: kind, Family: f}, true
}

// SetNumber implements tables.NumberMaps.
func (n *noted) SetNumber(name string, m model.Member, number tables.Number) {
	n.set(name).members[m] = number
}

// RemoveNumber implements tables.NumberMaps.
func (n *noted) RemoveNumber(name string, m model.Member) { delete(n.set(name).members, m) }

func (n *noted) set(name string) *notedSet {
	s := n.sets[name]
	if s == nil {
		s = &notedSet{members: map[model.Member]tables.Action{}}
		n.sets[name] = s
	}
	return s
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// table returns what nft would list of the private table.
func (n *noted) table(name string) *dump.Table {
	t := &dump.Table{Dialect: dump.NFT, Family: "inet", Name: name}
	for _, key := range sortedKeys(n.sets) {
		s := n.sets[key]
		out := &dump.Set{Name: key, Type: nftType(s), Kind: s.Kind, Family: s.Family, Verdicts: s.isMap, Numbers: s.numbers}
		for m, verdict := range s.members {
			out.Elements = append(out.Elements, dump.Element{Member: m, Verdict: verdict, Granted: s.Kind.Grants()})
		}
		slices.SortFunc(out.Elements, dump.Element.Compare)
		t.Sets = append(t.Sets, out)
	}
	for _, key := range sortedKeys(n.chains) {
		t.Chains = append(t.Chains, chain(n.chains[key]))
	}
	return t
}

func chain(c tables.Chain) *dump.Chain {
	out := &dump.Chain{Name: c.Name}
	if c.Hook != nil {
		out.Hook = &dump.Hook{Type: c.Hook.Type.String(), Point: c.Hook.Point.String(), Priority: c.Hook.Priority}
		out.Policy = "accept"
	}
	for i, hash := range c.Hashes() {
		out.Rules = append(out.Rules, dump.Rule{Rule: c.Rules[i], Hash: hash, Counted: true})
	}
	return out
}

// nftType is the type of a set in nft's words (see ipsets.Set).
func nftType(s *notedSet) string {
	address := "ipv4_addr"
	if s.Family == model.IPv6 {
		address = "ipv6_addr"
	}
	switch {
	case s.isMap:
		return address + " : verdict"
	case s.numbers && s.Kind == model.Networks:
		return address + " : mark flags interval"
	case s.numbers:
		return address + " : mark"
	case s.Kind == model.Grants:
		return "mark . mark . inet_proto . inet_service"
	case s.Kind == model.AnyPortGrants:
		return "mark . mark"
	case s.Kind == model.Networks:
		return address + " flags interval"
	case s.Kind == model.AddressPorts:
		return address + " . inet_proto . inet_service"
	case s.Kind == model.Loops:
		return address + " . " + address
	case s.Kind == model.Senders:
		return "ether_addr . " + address + " flags interval"
	}
	return address
}

// ipsets returns what `ipset save` would list.
func (n *noted) ipsets() []*dump.Set {
	var all []*dump.Set
	for _, key := range sortedKeys(n.sets) {
		s := n.sets[key]
		kind := map[model.GroupKind]string{model.Addresses: "hash:ip", model.Networks: "hash:net", model.AddressPorts: "hash:ip,port"}[s.Kind]
		out := &dump.Set{Name: ipsets.KernelName(key), Type: kind, Kind: s.Kind, Family: s.Family}
		for m := range s.members {
			for e := range kernel.Elements(m) {
				out.Elements = append(out.Elements, dump.Element{Member: e})
			}
		}
		slices.SortFunc(out.Elements, dump.Element.Compare)
		all = append(all, out)
	}
	slices.SortFunc(all, func(a, b *dump.Set) int { return strings.Compare(a.Name, b.Name) })
	return all
}
