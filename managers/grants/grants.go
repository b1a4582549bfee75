package grants

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// Driver programs the maps, sets and chains.
type Driver interface {
	ipsets.Sets
	tables.NumberMaps
	UpdateChain(tables.Chain)
	RemoveChain(name string)
}

// Grants are the lists of policies that are in grants, as a manager. The managers of policies and of endpoints come
// behind it and ask it which chains they need. A nil Grants is that of a layout without grants.
type Grants struct {
	driver    Driver
	chains    []tables.Chain
	options   Options
	policies  map[model.PolicyID]*model.Policy
	endpoints map[model.PodID]*model.Endpoint
	lists     map[string]*list
	numbers   numbers
	sides     map[rules.PolicySide]*side
	ledger    *ledger
	addresses *addresses
	networks  map[model.Family]*networks
	// members are those of the groups of single addresses.
	members map[model.GroupID]map[netip.Addr]struct{}

	dirtyPolicies map[model.PolicyID]struct{}
	dirtyLists    map[string]struct{}
	// changedLists were mapped or are no longer; changedSides need a chain now, or no longer.
	changedLists map[string]struct{}
	changedSides map[rules.PolicySide]struct{}
	full         *Overflow
}

// Options configure Grants.
type Options struct {
	// Bound is the most grants; zero is DefaultBound.
	Bound int
	// From is the least number of rules of a list in grants. A list stays in grants with half as many, and so do its pods when
	// their list changes.
	From int
	// Kept are the lists that are in grants with fewer rules than From, by rules.AppliedIdentity.
	Kept []string
}

// New returns Grants without lists, and wants their maps and sets, and the chains that look packets up in these (rules.Granted).
func New(driver Driver, chains []tables.Chain, o Options) *Grants {
	l := newLedger(cmp.Or(o.Bound, DefaultBound))
	s := newIdentities(l)
	g := &Grants{
		driver: driver, chains: chains, options: o, policies: map[model.PolicyID]*model.Policy{}, endpoints: map[model.PodID]*model.Endpoint{},
		lists: map[string]*list{}, numbers: newNumbers(), sides: map[rules.PolicySide]*side{}, ledger: l, addresses: newAddresses(s),
		networks: map[model.Family]*networks{}, members: map[model.GroupID]map[netip.Addr]struct{}{},
		dirtyPolicies: map[model.PolicyID]struct{}{}, dirtyLists: map[string]struct{}{},
		changedLists: map[string]struct{}{}, changedSides: map[rules.PolicySide]struct{}{},
	}
	for _, f := range model.Families() {
		g.networks[f] = newNetworks(f, s)
	}
	g.create()
	return g
}

func (g *Grants) create() {
	g.driver.CreateSet(ipsets.Set{Name: rules.GrantsSet, Kind: model.Grants, Family: model.IPv6})
	g.driver.CreateSet(ipsets.Set{Name: rules.AnyPortGrantsSet, Kind: model.AnyPortGrants, Family: model.IPv6})
	for _, f := range model.Families() {
		g.driver.CreateNumberMap(rules.IdentityMap(f), model.Addresses, f)
		g.driver.CreateNumberMap(rules.NetworkMap(f), model.Networks, f)
		for _, d := range model.Directions() {
			g.driver.CreateNumberMap(rules.ListMap(d, f), model.Addresses, f)
		}
	}
	for _, c := range g.chains {
		g.driver.UpdateChain(c)
	}
}

// remove removes what create has created.
func (g *Grants) remove() {
	for _, c := range g.chains {
		g.driver.RemoveChain(c.Name)
	}
	names := []string{rules.GrantsSet, rules.AnyPortGrantsSet}
	for _, f := range model.Families() {
		names = append(names, rules.IdentityMap(f), rules.NetworkMap(f), rules.ListMap(model.Egress, f), rules.ListMap(model.Ingress, f))
	}
	for _, name := range names {
		g.driver.RemoveSet(name)
	}
}

// OnUpdate takes updates of groups, policies and endpoints.
func (g *Grants) OnUpdate(u model.Update) {
	switch u := u.(type) {
	case model.EndpointUpdate:
		g.setEndpoint(u.Endpoint.ID, u.Endpoint)
	case model.EndpointRemove:
		g.setEndpoint(u.ID, nil)
	default:
		if g.full == nil {
			g.onInput(u)
		}
	}
}

// onInput takes what grants are made of.
func (g *Grants) onInput(u model.Update) {
	switch u := u.(type) {
	case model.GroupUpdate:
		for _, m := range u.Removed {
			g.setMember(u.Group.ID, m, false)
		}
		for _, m := range u.Added {
			g.setMember(u.Group.ID, m, true)
		}
	case model.GroupRemove:
		for a := range g.members[u.ID] {
			g.addresses.set(a, u.ID, false)
		}
		delete(g.members, u.ID)
		for _, n := range g.networks {
			n.forget(u.ID)
		}
	case model.PolicyUpdate:
		g.policies[u.Policy.ID] = u.Policy
		g.dirtyPolicies[u.Policy.ID] = struct{}{}
	case model.PolicyRemove:
		delete(g.policies, u.ID)
		g.dirtyPolicies[u.ID] = struct{}{}
	}
}

func (g *Grants) setMember(id model.GroupID, m model.Member, has bool) {
	switch id.Kind() {
	case model.Networks:
		g.networks[m.Family()].set(id, m, has)
	case model.Addresses:
		if g.members[id] == nil {
			g.members[id] = map[netip.Addr]struct{}{}
		}
		if has {
			g.members[id][m.Prefix.Addr()] = struct{}{}
		} else {
			delete(g.members[id], m.Prefix.Addr())
		}
		g.addresses.set(m.Prefix.Addr(), id, has)
	}
}

func (g *Grants) setEndpoint(id model.PodID, e *model.Endpoint) {
	for _, d := range model.Directions() {
		var l *list
		if e != nil {
			l = g.hold(d, e.Applied(d), 1)
		}
		if old := g.endpoints[id]; old != nil {
			before := g.hold(d, old.Applied(d), -1)
			if l != nil && before != nil && (before.mapped || before.kept) {
				l.kept = true
			}
		}
	}
	if e != nil {
		g.endpoints[id] = e
	} else {
		delete(g.endpoints, id)
	}
}

// activate has the members of groups looked at that rules have begun or ceased to have as peers.
func (g *Grants) activate(groups []model.GroupID) {
	for _, id := range groups {
		for a := range g.members[id] {
			g.addresses.dirty[a] = struct{}{}
		}
		if id.Kind() == model.Networks {
			for _, n := range g.networks {
				n.dirty[id] = struct{}{}
			}
		}
	}
}

// CompleteDeferredWork programs the grants and identities for all updates. If there are too many grants, it gives
// all lists back to the chains, and removes the maps and sets.
func (g *Grants) CompleteDeferredWork() {
	if g.full != nil {
		g.settleLists()
		return
	}
	g.settle()
	if g.full = g.overflow(); g.full != nil {
		g.abandon()
		return
	}
	g.ledger.settle(g.driver)
}

func (g *Grants) settle() {
	for _, id := range slices.SortedFunc(maps.Keys(g.dirtyPolicies), model.PolicyID.Compare) {
		g.settlePolicy(id)
	}
	g.dirtyPolicies = map[model.PolicyID]struct{}{} // as ledger.changed
	g.settleLists()
	g.addresses.settle(g.ledger.active, g.driver)
	for _, f := range model.Families() {
		g.networks[f].settle(g.ledger.active, g.driver)
	}
}

func (g *Grants) settleLists() {
	for _, key := range slices.Sorted(maps.Keys(g.dirtyLists)) {
		g.settleList(key)
	}
	g.dirtyLists = map[string]struct{}{}
}

// abandon removes the maps and sets as they are, gives all lists back to the chains, and forgets what grants are made of:
// from now on only lists and sides count.
func (g *Grants) abandon() {
	g.remove()
	g.ledger, g.addresses, g.networks, g.members, g.policies = newLedger(0), nil, nil, nil, nil
	for _, s := range g.sides {
		s.rules = nil
	}
	for key := range g.lists {
		g.dirtyLists[key] = struct{}{}
	}
	g.settleLists()
}

// Full returns why the lists are in chains: an Overflow if their grants were too many, or nil.
func (g *Grants) Full() error {
	if g == nil || g.full == nil {
		return nil
	}
	return g.full
}

// Kept returns the lists that are in grants with fewer rules than Options.From.
func (g *Grants) Kept() (all []string) {
	if g == nil {
		return nil
	}
	for key, l := range g.lists {
		if l.mapped && g.size(l) < g.options.From {
			all = append(all, key)
		}
	}
	slices.Sort(all)
	return all
}

// Use is how much of the maps is used.
type Use struct {
	// Grants are of at most Bound. Pods have a direction whose policies are in grants.
	Grants, Bound, Pods int
}

// Use returns how much is used, or nil if no lists can be in grants.
func (g *Grants) Use() *Use {
	if g == nil || g.full != nil {
		return nil
	}
	u := &Use{Grants: len(g.ledger.counts), Bound: g.ledger.limit}
	for _, e := range g.endpoints {
		if slices.ContainsFunc(model.Directions(), func(d model.Direction) bool { return g.Mapped(rules.AppliedIdentity(d, e.Applied(d))) }) {
			u.Pods++
		}
	}
	return u
}

// Mapped reports whether a list of policies is in grants, by its rules.AppliedIdentity.
func (g *Grants) Mapped(key string) bool {
	return g != nil && g.lists[key] != nil && g.lists[key].mapped
}

// NeedsChain reports whether a list that is not in grants has the policy.
func (g *Grants) NeedsChain(k rules.PolicySide) bool {
	return g == nil || k.ID.Tier != model.TierNetworkPolicy || g.sides[k] != nil && g.sides[k].chained > 0
}

// ChangedLists returns the lists that have come to grants or left them since the last call.
func (g *Grants) ChangedLists() []string {
	if g == nil {
		return nil
	}
	all := slices.SortedFunc(maps.Keys(g.changedLists), strings.Compare)
	g.changedLists = map[string]struct{}{}
	return all
}

// ChangedSides returns the policies that need a chain, or need none, since the last call.
func (g *Grants) ChangedSides() []rules.PolicySide {
	if g == nil {
		return nil
	}
	all := slices.SortedFunc(maps.Keys(g.changedSides), rules.PolicySide.Compare)
	g.changedSides = map[rules.PolicySide]struct{}{}
	return all
}

// SetList notes that an address is that of a pod with the list, or with "" of none in grants.
func (g *Grants) SetList(d model.Direction, a netip.Addr, key string) {
	if g == nil || g.full != nil {
		return
	}
	name, m := rules.ListMap(d, model.FamilyOf(a)), model.AddressMember(a)
	if l := g.lists[key]; l != nil && l.mapped {
		g.driver.SetNumber(name, m, l.number)
		return
	}
	g.driver.RemoveNumber(name, m)
}
