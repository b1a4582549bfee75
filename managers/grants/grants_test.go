package grants

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/felixlike/policy/judge"
	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// kernel stands for the maps and sets of the kernel. As there, an entry of networks that overlaps another is an error.
type kernel struct {
	t       interface{ Fatalf(string, ...any) }
	sets    map[string]map[model.Member]bool
	numbers map[string]map[model.Member]tables.Number
	chains  map[string]bool
	writes  int
}

func newKernel(t interface{ Fatalf(string, ...any) }) *kernel {
	return &kernel{t: t, sets: map[string]map[model.Member]bool{}, numbers: map[string]map[model.Member]tables.Number{}, chains: map[string]bool{}}
}

func (k *kernel) CreateSet(s ipsets.Set) { k.sets[s.Name] = map[model.Member]bool{} }
func (k *kernel) RemoveSet(name string) {
	delete(k.sets, name)
	delete(k.numbers, name)
}

func (k *kernel) UpdateChain(c tables.Chain) { k.chains[c.Name] = true }
func (k *kernel) RemoveChain(name string)    { delete(k.chains, name) }

func (k *kernel) AddMembers(name string, all []model.Member) {
	for _, m := range all {
		if k.writes++; k.sets[name][m] {
			k.t.Fatalf("%s has %v already", name, m.Grant())
		}
		k.sets[name][m] = true
	}
}

func (k *kernel) RemoveMembers(name string, all []model.Member) {
	for _, m := range all {
		if k.writes++; !k.sets[name][m] {
			k.t.Fatalf("%s has no %v", name, m.Grant())
		}
		delete(k.sets[name], m)
	}
}

func (k *kernel) CreateNumberMap(name string, _ model.GroupKind, _ model.Family) {
	k.numbers[name] = map[model.Member]tables.Number{}
}

func (k *kernel) SetNumber(name string, m model.Member, n tables.Number) {
	k.writes++
	k.numbers[name][m] = n
}

func (k *kernel) RemoveNumber(name string, m model.Member) {
	k.writes++
	delete(k.numbers[name], m)
}

// number looks an address up.
func (k *kernel) number(name string, a netip.Addr) (found tables.Number) {
	hits := 0
	for m, n := range k.numbers[name] {
		if m.Range().Contains(a) {
			found = n
			hits++
		}
	}
	if hits > 1 {
		k.t.Fatalf("%d entries of %s have %s", hits, name, a)
	}
	return found
}

// allows judges a packet as the rules of rules.Granted do.
func (k *kernel) allows(d model.Direction, p judge.Packet) bool {
	pod, peer := p.Destination, p.Source
	if d == model.Egress {
		pod, peer = peer, pod
	}
	f := model.FamilyOf(pod)
	list := k.number(rules.ListMap(d, f), pod)
	if list == 0 {
		return false
	}
	for _, peers := range []tables.Number{k.number(rules.IdentityMap(f), peer), k.number(rules.NetworkMap(f), peer), 0} {
		g := model.Grant{List: uint32(list), Peers: uint32(peers)}
		if k.sets[rules.AnyPortGrantsSet][g.Member()] {
			return true
		}
		g.Protocol, g.Port = p.Protocol, p.Port
		if k.sets[rules.GrantsSet][g.Member()] {
			return true
		}
	}
	return false
}

// world is a random model, the maps and sets programmed from it, and a judge that decides by the model.
type world struct {
	grants    *Grants
	kernel    *kernel
	judge     *judge.Judge
	groups    map[model.GroupID]map[model.Member]bool
	policies  map[model.PolicyID]*model.Policy
	endpoints map[model.PodID]*model.Endpoint
	// chains are the policies that need a chain, as far as the manager of policies was told: it asks for a policy
	// when this changes, and when the grants say so.
	chains map[rules.PolicySide]bool
	asked  map[model.PolicyID]bool
}

func newWorld(t interface{ Fatalf(string, ...any) }, bits int, o Options) *world {
	k := newKernel(t)
	w := &world{
		grants: New(k, []tables.Chain{{Name: rules.GrantedChain(model.Ingress)}}, o), kernel: k, judge: judge.New(), groups: map[model.GroupID]map[model.Member]bool{},
		policies: map[model.PolicyID]*model.Policy{}, endpoints: map[model.PodID]*model.Endpoint{},
		chains: map[rules.PolicySide]bool{}, asked: map[model.PolicyID]bool{},
	}
	w.grants.numbers.bits = bits
	w.grants.addresses.identities.numbers.bits = bits
	return w
}

func (w *world) update(u model.Update) {
	if u, ok := u.(model.PolicyUpdate); ok {
		w.asked[u.Policy.ID] = true
	}
	w.grants.OnUpdate(u)
	w.judge.OnUpdate(u)
}

// complete programs everything, as the manager of endpoints does for attached pods.
func (w *world) complete() {
	w.grants.CompleteDeferredWork()
	w.grants.ChangedLists()
	for _, side := range w.grants.ChangedSides() {
		w.asked[side.ID] = true
	}
	for id := range w.asked {
		for _, d := range model.Directions() {
			side := rules.PolicySide{ID: id, Direction: d}
			w.chains[side] = w.grants.NeedsChain(side)
		}
	}
	clear(w.asked)
	for i := range pods {
		for _, a := range podAddresses(i) {
			for _, d := range model.Directions() {
				key := ""
				if e := w.endpoints[podID(i)]; e != nil {
					key = rules.AppliedIdentity(d, e.Applied(d))
				}
				w.grants.SetList(d, a, key)
			}
		}
	}
}

const pods = 3

func podID(i int) model.PodID { return model.PodID{Namespace: "n", Name: fmt.Sprint(i)} }

// The pods' addresses are among those of the peers.
func podAddresses(i int) []netip.Addr {
	return []netip.Addr{address(model.IPv4, i), address(model.IPv6, i)}
}

func address(f model.Family, i int) netip.Addr {
	if f == model.IPv4 {
		return netip.AddrFrom4([4]byte{255, 255, 255, byte(256 - addresses16 + i)})
	}
	return netip.AddrFrom16([16]byte{0xfd, 15: byte(i)})
}

// addresses16 is how many addresses of a family there are. Those of IPv4 are at the end of the address space.
const addresses16 = 16

var (
	groupIDs  = []model.GroupID{"aone", "atwo", "athree", "none", "ntwo", "nthree"}
	policyIDs = []model.PolicyID{
		{Tier: model.TierNetworkPolicy, Namespace: "n", Name: "a"},
		{Tier: model.TierNetworkPolicy, Namespace: "n", Name: "b"},
		{Tier: model.TierNetworkPolicy, Namespace: "n", Name: "c"},
		{Tier: model.TierAdmin, Name: "d"},
	}
	protocols = []model.Protocol{model.TCP, model.UDP, model.SCTP}
)

// step changes something.
func (w *world) step(t *rapid.T) {
	switch rapid.IntRange(0, 5).Draw(t, "change") {
	case 0, 1, 2:
		id := rapid.SampledFrom(groupIDs).Draw(t, "group")
		members := drawMembers(t, id)
		u := model.GroupUpdate{Group: model.Group{ID: id, Kind: id.Kind()}}
		for m := range w.groups[id] {
			if !members[m] {
				u.Removed = append(u.Removed, m)
			}
		}
		for m := range members {
			if !w.groups[id][m] {
				u.Added = append(u.Added, m)
			}
		}
		w.groups[id] = members
		w.update(u)
		if len(members) == 0 {
			delete(w.groups, id)
			w.update(model.GroupRemove{ID: id})
		}
	case 3:
		id := rapid.SampledFrom(policyIDs).Draw(t, "policy")
		if w.policies[id] != nil && rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
			delete(w.policies, id)
			w.update(model.PolicyRemove{ID: id})
			return
		}
		p := &model.Policy{ID: id, Ingress: drawRules(t), Egress: drawRules(t)}
		if old := w.policies[id]; old != nil && rapid.Bool().Draw(t, "edit one rule") {
			p.Ingress = slices.Concat(old.Ingress[:len(old.Ingress)/2], drawRules(t), old.Ingress[len(old.Ingress)/2:])
			p.Egress = old.Egress
		}
		w.policies[id] = p
		w.update(model.PolicyUpdate{Policy: p})
	default:
		id := podID(rapid.IntRange(0, pods-1).Draw(t, "pod"))
		if w.endpoints[id] != nil && rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
			delete(w.endpoints, id)
			w.update(model.EndpointRemove{ID: id})
			return
		}
		e := &model.Endpoint{ID: id, Ingress: drawApplied(t), Egress: drawApplied(t)}
		w.endpoints[id] = e
		w.update(model.EndpointUpdate{Endpoint: e})
	}
}

func drawMembers(t *rapid.T, id model.GroupID) map[model.Member]bool {
	all := map[model.Member]bool{}
	for range rapid.IntRange(0, 4).Draw(t, "members") {
		f := rapid.SampledFrom(model.Families()).Draw(t, "family")
		m := model.AddressMember(address(f, rapid.IntRange(0, addresses16-1).Draw(t, "address")))
		if id.Kind() == model.Networks {
			bits := m.Prefix.Bits() - rapid.IntRange(0, 6).Draw(t, "bits")
			if rapid.IntRange(0, 9).Draw(t, "all addresses") == 0 {
				bits = 0
			}
			m.Prefix = netip.PrefixFrom(m.Prefix.Addr(), bits).Masked()
			// A prefix is a member or an exception, never both.
			except := m
			except.Except = true
			if m.Except = rapid.IntRange(0, 2).Draw(t, "except") == 0; m.Except && all[withoutExcept(m)] || all[except] {
				continue
			}
		}
		all[m] = true
	}
	return all
}

func withoutExcept(m model.Member) model.Member {
	m.Except = false
	return m
}

func drawRules(t *rapid.T) []model.Rule {
	var all []model.Rule
	for range rapid.IntRange(0, 3).Draw(t, "rules") {
		r := model.Rule{Action: model.Allow, AnyPeer: rapid.IntRange(0, 3).Draw(t, "any peer") == 0, AnyPort: rapid.IntRange(0, 2).Draw(t, "any port") == 0}
		if !r.AnyPeer {
			r.Peers = rapid.SliceOfN(rapid.SampledFrom(groupIDs), 0, 3).Draw(t, "peers")
		}
		for range rapid.IntRange(0, 2).Draw(t, "ports") {
			first := rapid.Uint16Range(1, 5).Draw(t, "first")
			r.Ports = append(r.Ports, model.PortRange{
				Protocol: rapid.SampledFrom(protocols).Draw(t, "protocol"), First: first, Last: first + rapid.Uint16Range(0, 3).Draw(t, "more"),
			})
		}
		if rapid.IntRange(0, 15).Draw(t, "inexpressible") == 0 {
			r.Log = true
		}
		all = append(all, r)
	}
	return all
}

func drawApplied(t *rapid.T) model.Applied {
	var a model.Applied
	for _, id := range policyIDs {
		switch {
		case rapid.Bool().Draw(t, "applies"):
		case id.Tier == model.TierNetworkPolicy:
			a.NetworkPolicies = append(a.NetworkPolicies, id)
		case rapid.IntRange(0, 3).Draw(t, "admin") == 0:
			a.Admin = append(a.Admin, id)
		}
	}
	return a
}

// check compares the verdicts about all packets of pods whose list is in grants. The lists of other pods have the chain
// of each of their policies.
func (w *world) check(t *rapid.T) (mapped int) {
	for side, has := range w.chains {
		if w.policies[side.ID] != nil && has != w.grants.NeedsChain(side) {
			t.Fatalf("%v has a chain: %v, and nobody was told that it needs one: %v", side, has, !has)
		}
	}
	for i := range pods {
		e := w.endpoints[podID(i)]
		for _, d := range model.Directions() {
			if e == nil || e.Applied(d).Empty() || !w.grants.Mapped(rules.AppliedIdentity(d, e.Applied(d))) {
				for _, pod := range podAddresses(i) {
					if n := w.kernel.number(rules.ListMap(d, model.FamilyOf(pod)), pod); n != 0 {
						t.Fatalf("%s of %s has list %s, and is not in grants", d, pod, n)
					}
				}
				continue
			}
			mapped++
			for _, pod := range podAddresses(i) {
				for n := range addresses16 {
					for _, protocol := range append(protocols, model.ICMP) {
						for _, port := range []uint16{0, 1, 4, 8} {
							p := judge.Packet{Source: address(model.FamilyOf(pod), n), Destination: pod, Protocol: protocol, Port: port}
							if d == model.Egress {
								p.Source, p.Destination = p.Destination, p.Source
							}
							got, want := w.kernel.allows(d, p), w.judge.Decide(e.Applied(d), d, p).Action == model.Allow
							if got != want {
								t.Fatalf("%s of %+v by %v: allowed %v, want %v", d, p, e.Applied(d), got, want)
							}
						}
					}
				}
			}
		}
	}
	return mapped
}

// again returns a world with the same objects, and no history.
func (w *world) again(t *rapid.T, bits int) *world {
	fresh := newWorld(t, bits, Options{From: w.grants.options.From, Kept: w.grants.Kept()})
	for id, members := range w.groups {
		fresh.update(model.GroupUpdate{Group: model.Group{ID: id, Kind: id.Kind()}, Added: slices.Collect(maps.Keys(members))})
	}
	for _, e := range w.endpoints {
		fresh.endpoints[e.ID] = e
		fresh.update(model.EndpointUpdate{Endpoint: e})
	}
	for _, p := range w.policies {
		fresh.update(model.PolicyUpdate{Policy: p})
	}
	fresh.complete()
	return fresh
}

// TestGrantsAgreeWithJudge: after any changes the grants give the verdicts of the model. They do not depend on history, apart
// from Kept, and are the same after a restart.
func TestGrantsAgreeWithJudge(t *testing.T) {
	mapped := 0
	seeded.Check(t, func(t *rapid.T) {
		w := newWorld(t, 32, Options{From: rapid.SampledFrom([]int{0, 0, 1, 2, 6}).Draw(t, "from")})
		for range rapid.IntRange(1, 6).Draw(t, "passes") {
			for range rapid.IntRange(1, 8).Draw(t, "steps") {
				w.step(t)
			}
			w.complete()
			mapped += w.check(t)
			fresh := w.again(t, 32)
			if fmt.Sprint(w.kernel.sets) != fmt.Sprint(fresh.kernel.sets) || fmt.Sprint(w.kernel.numbers) != fmt.Sprint(fresh.kernel.numbers) {
				t.Fatalf("programmed\n%v\n%v\nafter a restart\n%v\n%v", w.kernel.sets, w.kernel.numbers, fresh.kernel.sets, fresh.kernel.numbers)
			}
			for _, id := range policyIDs {
				for _, d := range model.Directions() {
					want := id.Tier != model.TierNetworkPolicy
					for _, e := range w.endpoints {
						all := slices.Collect(e.Applied(d).All())
						want = want || slices.Contains(all, id) && !w.grants.Mapped(rules.AppliedIdentity(d, e.Applied(d)))
					}
					if got := w.grants.NeedsChain(rules.PolicySide{ID: id, Direction: d}); got != want {
						t.Fatalf("%s %s needs a chain: %v, want %v", id, d, got, want)
					}
				}
			}
		}
	})
	if mapped == 0 {
		t.Error("no list was in grants")
	}
}

// TestCollidingNumbers: numbers of few bits collide, and mean different things all the same.
func TestCollidingNumbers(t *testing.T) {
	seeded.Check(t, func(t *rapid.T) {
		w := newWorld(t, 7, Options{})
		for range rapid.IntRange(1, 3).Draw(t, "passes") {
			for range rapid.IntRange(1, 8).Draw(t, "steps") {
				w.step(t)
			}
			w.complete()
			w.check(t)
		}
	})
}

// TestTooManyGrants: beyond the bound, all lists go back to the chains and nothing is left. They do not come back.
func TestTooManyGrants(t *testing.T) {
	seeded.Check(t, func(t *rapid.T) {
		w := newWorld(t, 32, Options{Bound: 5})
		for range rapid.IntRange(1, 20).Draw(t, "passes") {
			full := w.grants.Full() != nil
			w.step(t)
			w.complete()
			mapped := w.check(t)
			grants := 0
			for _, all := range w.kernel.sets {
				grants += len(all)
			}
			switch {
			case grants > 5:
				t.Fatalf("%d grants", grants)
			case w.grants.Full() != nil && (mapped > 0 || grants > 0):
				t.Fatalf("%d lists are in %d grants", mapped, grants)
			case w.grants.Full() != nil && len(w.kernel.sets)+len(w.kernel.numbers)+len(w.kernel.chains) > 0:
				t.Fatalf("left: %v, %v, %v", w.kernel.sets, w.kernel.numbers, w.kernel.chains)
			case full && w.grants.Full() == nil:
				t.Fatalf("it is not full any more")
			}
		}
	})
}

// TestFallingBack: the change that makes the grants too many removes the sets as they are, without their elements, and frees what
// grants were made of. Later groups and policies cost nothing.
func TestFallingBack(t *testing.T) {
	w := newWorld(t, 32, Options{Bound: 5})
	id := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "n", Name: "p"}
	ports := func(n uint16) {
		w.update(model.PolicyUpdate{Policy: &model.Policy{ID: id, Ingress: []model.Rule{
			{Action: model.Allow, Peers: []model.GroupID{"a1"}, Ports: []model.PortRange{{Protocol: model.TCP, First: 1, Last: n}}},
		}}})
	}
	w.update(model.GroupUpdate{Group: model.Group{ID: "a1"}, Added: []model.Member{model.AddressMember(netip.MustParseAddr("10.0.0.1"))}})
	ports(5)
	w.update(model.EndpointUpdate{Endpoint: &model.Endpoint{ID: podID(1), Ingress: model.Applied{NetworkPolicies: []model.PolicyID{id}}}})
	w.grants.CompleteDeferredWork()
	if n := len(w.kernel.sets[rules.GrantsSet]); n != 5 {
		t.Fatalf("%d grants", n)
	}
	if u := w.grants.Use(); u == nil || *u != (Use{Grants: 5, Bound: 5, Pods: 1}) {
		t.Errorf("use %+v", u)
	}
	w.kernel.writes = 0
	ports(6)
	w.grants.CompleteDeferredWork()
	ports(7)
	w.update(model.GroupUpdate{Group: model.Group{ID: "a1"}, Added: []model.Member{model.AddressMember(netip.MustParseAddr("10.0.0.2"))}})
	w.grants.CompleteDeferredWork()
	if w.grants.Use() != nil || (*Grants)(nil).Use() != nil {
		t.Errorf("there are no grants, but use %+v", w.grants.Use())
	}
	if w.grants.Full() == nil || len(w.kernel.sets) > 0 || w.kernel.writes > 0 {
		t.Errorf("%v; %d sets left, %d elements written", w.grants.Full(), len(w.kernel.sets), w.kernel.writes)
	}
	if g := w.grants; len(g.policies)+len(g.members)+len(g.ledger.counts)+len(g.dirtyPolicies) > 0 || g.addresses != nil || g.networks != nil {
		t.Error("what grants were made of is kept")
	}
}

// TestGrowingListThatLeaves: a list that gets too many grants and leaves the grants in one change is not too much, and nothing of it is left.
func TestGrowingListThatLeaves(t *testing.T) {
	id := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "n", Name: "p"}
	e := &model.Endpoint{ID: podID(1), Ingress: model.Applied{NetworkPolicies: []model.PolicyID{id}}}
	ports := func(n uint16) model.Update {
		return model.PolicyUpdate{Policy: &model.Policy{ID: id, Ingress: []model.Rule{
			{Action: model.Allow, AnyPeer: true, Ports: []model.PortRange{{Protocol: model.TCP, First: 1, Last: n}}},
		}}}
	}
	for what, leaves := range map[string][]model.Update{
		"more ports than grants express": {ports(40)},
		"its pod goes":                   {ports(10), model.EndpointRemove{ID: e.ID}},
	} {
		w := newWorld(t, 32, Options{Bound: 5})
		w.update(ports(5))
		w.update(model.EndpointUpdate{Endpoint: e})
		w.grants.CompleteDeferredWork()
		for range 2 {
			for _, u := range leaves {
				w.update(u)
			}
			w.grants.CompleteDeferredWork()
			if n := len(w.kernel.sets[rules.GrantsSet]); n > 0 || w.grants.Full() != nil {
				t.Errorf("%s: %d grants are left, full: %v", what, n, w.grants.Full())
			}
			w.update(ports(4))
			w.update(model.EndpointUpdate{Endpoint: e})
			w.grants.CompleteDeferredWork()
			if n := len(w.kernel.sets[rules.GrantsSet]); n != 4 || !w.grants.Mapped(rules.AppliedIdentity(model.Ingress, e.Ingress)) {
				t.Errorf("%s: %d grants when it is back", what, n)
			}
		}
	}
}

// TestListsOfManyPortsAreNotMapped: a list whose rules have more than 16 ports on average stays in chains, and costs no grant.
func TestListsOfManyPortsAreNotMapped(t *testing.T) {
	w := newWorld(t, 32, Options{})
	id := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "n", Name: "p"}
	e := &model.Endpoint{ID: podID(1), Ingress: model.Applied{NetworkPolicies: []model.PolicyID{id}}}
	w.update(model.EndpointUpdate{Endpoint: e})
	for _, c := range []struct {
		ranges []uint16
		mapped bool
	}{{[]uint16{16}, true}, {[]uint16{17}, false}, {[]uint16{31, 1}, true}, {[]uint16{35, 35}, false}, {nil, true}} {
		p := &model.Policy{ID: id}
		for _, last := range c.ranges {
			p.Ingress = append(p.Ingress, model.Rule{Action: model.Allow, AnyPeer: true, Ports: []model.PortRange{{Protocol: model.TCP, First: 1, Last: last}}})
		}
		w.update(model.PolicyUpdate{Policy: p})
		w.grants.CompleteDeferredWork()
		if got := w.grants.Mapped(rules.AppliedIdentity(model.Ingress, e.Ingress)); got != c.mapped || !got && len(w.kernel.sets[rules.GrantsSet]) > 0 {
			t.Errorf("rules of %v ports: in grants %v, %d grants", c.ranges, got, len(w.kernel.sets[rules.GrantsSet]))
		}
	}
}

// TestCostOfChanges: a change costs the elements that it concerns.
func TestCostOfChanges(t *testing.T) {
	w := newWorld(t, 32, Options{})
	const n = 500
	groupOf := func(i int) model.GroupID { return model.GroupID(fmt.Sprintf("a%03d", i)) }
	policy := func(i int, port uint16) *model.Policy {
		return &model.Policy{ID: model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "n", Name: fmt.Sprint(i)}, Ingress: []model.Rule{
			{Action: model.Allow, Peers: []model.GroupID{groupOf(i)}, Ports: []model.PortRange{{Protocol: model.TCP, First: port, Last: port}}},
			{Action: model.Allow, Peers: []model.GroupID{groupOf((i + 1) % n)}, AnyPort: true},
		}}
	}
	member := func(i int) model.Member {
		return model.AddressMember(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
	}
	for i := range n {
		w.update(model.GroupUpdate{Group: model.Group{ID: groupOf(i)}, Added: []model.Member{member(i)}})
		w.update(model.PolicyUpdate{Policy: policy(i, 80)})
		w.update(model.EndpointUpdate{Endpoint: &model.Endpoint{ID: podID(i), Ingress: model.Applied{NetworkPolicies: []model.PolicyID{policy(i, 0).ID}}}})
	}
	w.grants.CompleteDeferredWork()
	for name, c := range map[string]struct {
		want int
		u    model.Update
	}{
		"a rule's port":       {2, model.PolicyUpdate{Policy: policy(7, 81)}},
		"a member as another": {1, model.GroupUpdate{Group: model.Group{ID: groupOf(9)}, Added: []model.Member{member(600)}}},
		// It has two groups now: a new identity, with the grants of both.
		"a member of two groups": {1 + 4, model.GroupUpdate{Group: model.Group{ID: groupOf(20)}, Added: []model.Member{member(601)}}},
	} {
		if name == "a member of two groups" {
			w.update(model.GroupUpdate{Group: model.Group{ID: groupOf(30)}, Added: []model.Member{member(601)}})
		}
		w.kernel.writes = 0
		w.update(c.u)
		w.grants.CompleteDeferredWork()
		if w.kernel.writes != c.want {
			t.Errorf("%s: %d writes, want %d", name, w.kernel.writes, c.want)
		}
	}
}

// TestNoEmptiedMaps: after a load, the maps of pending changes are new ones. An emptied map keeps
// its size, so each later change would look through as much as the load.
func TestNoEmptiedMaps(t *testing.T) {
	w := newWorld(t, 32, Options{})
	n := w.grants.networks[model.IPv4]
	pending := func() map[string]any {
		return map[string]any{
			"ledger.changed": w.grants.ledger.changed, "addresses.dirty": w.grants.addresses.dirty,
			"networks.dirty": n.dirty, "networks.touched": n.touched,
			"dirtyPolicies": w.grants.dirtyPolicies, "dirtyLists": w.grants.dirtyLists,
			"changedLists": w.grants.changedLists, "changedSides": w.grants.changedSides,
		}
	}
	loaded := pending() // holds these maps: no other one takes their place in memory
	id := policyIDs[0]
	w.update(model.GroupUpdate{Group: model.Group{ID: "apods"}, Added: []model.Member{model.AddressMember(netip.MustParseAddr("10.0.0.1"))}})
	w.update(model.GroupUpdate{Group: model.Group{ID: "nnets"}, Added: []model.Member{{Prefix: netip.MustParsePrefix("192.0.2.0/24")}}})
	w.update(model.PolicyUpdate{Policy: &model.Policy{ID: id, Ingress: []model.Rule{{Action: model.Allow, Peers: []model.GroupID{"apods", "nnets"}, AnyPort: true}}}})
	w.update(model.EndpointUpdate{Endpoint: &model.Endpoint{ID: podID(0), Ingress: model.Applied{NetworkPolicies: []model.PolicyID{id}}}})
	w.complete()
	for name, now := range pending() {
		if now := reflect.ValueOf(now); now.Len() > 0 || now.Pointer() == reflect.ValueOf(loaded[name]).Pointer() {
			t.Errorf("%s is the map that held the load, emptied, or has %d entries", name, now.Len())
		}
	}
}

// TestLargeListsAreMapped: a list comes to grants with From rules, and leaves with fewer than half of them. A pod whose list
// is replaced stays in grants likewise.
func TestLargeListsAreMapped(t *testing.T) {
	w := newWorld(t, 32, Options{From: 10})
	ids := policyIDs[:2]
	set := func(id model.PolicyID, size int) {
		p := &model.Policy{ID: id}
		for port := range uint16(size) {
			p.Ingress = append(p.Ingress, model.Rule{Action: model.Allow, AnyPeer: true, Ports: []model.PortRange{{Protocol: model.TCP, First: 1 + port, Last: 1 + port}}})
		}
		w.update(model.PolicyUpdate{Policy: p})
	}
	apply := func(all ...model.PolicyID) *model.Endpoint {
		e := &model.Endpoint{ID: podID(0), Ingress: model.Applied{NetworkPolicies: all}}
		w.update(model.EndpointUpdate{Endpoint: e})
		return e
	}
	e := apply(ids[0])
	for i, c := range []struct {
		change func()
		mapped bool
	}{
		{func() { set(ids[0], 9) }, false},
		{func() { set(ids[0], 10) }, true},
		{func() { set(ids[0], 5) }, true},
		{func() { set(ids[0], 4) }, false},
		{func() { set(ids[0], 9) }, false},
		{func() { set(ids[1], 1); e = apply(ids...) }, true},
		{func() { set(ids[0], 5); e = apply(ids[0]) }, true},
		{func() { set(ids[0], 4); e = apply(ids...) }, true},
		{func() { e = apply(ids[0]) }, false},
		{func() { e = apply(ids...) }, false},
	} {
		c.change()
		w.grants.CompleteDeferredWork()
		if got := w.grants.Mapped(rules.AppliedIdentity(model.Ingress, e.Ingress)); got != c.mapped {
			t.Errorf("change %d: in grants %v, want %v", i, got, c.mapped)
		}
	}
}
