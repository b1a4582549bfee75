package managers

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// held is what a driver with maps holds, to follow packets through.
type held struct {
	chains map[string]tables.Chain
	maps   map[string]map[netip.Addr]tables.Action
	sets   map[string]map[model.Member]bool
}

func (h *held) UpdateChain(c tables.Chain)                         { h.chains[c.Name] = c }
func (h *held) RemoveChain(name string)                            { delete(h.chains, name) }
func (h *held) CreateSet(s ipsets.Set)                             { h.sets[s.Name] = map[model.Member]bool{} }
func (h *held) RemoveSet(name string)                              { delete(h.sets, name) }
func (h *held) CreateMap(n string, _ model.Family)                 { h.maps[n] = map[netip.Addr]tables.Action{} }
func (h *held) SetVerdict(n string, a netip.Addr, v tables.Action) { h.maps[n][a] = v }
func (h *held) RemoveVerdict(n string, a netip.Addr)               { delete(h.maps[n], a) }

func (h *held) AddMembers(name string, members []model.Member) {
	for _, m := range members {
		h.sets[name][m] = true
	}
}

func (h *held) RemoveMembers(name string, members []model.Member) {
	for _, m := range members {
		delete(h.sets[name], m)
	}
}

// text is all that is held.
func (h *held) text() string {
	var out string
	for _, name := range slices.Sorted(maps.Keys(h.chains)) {
		c := h.chains[name]
		out += c.Text()
	}
	return out + fmt.Sprint(h.maps, h.sets)
}

// commonNode is the managers of a node.
type commonNode struct {
	held     *held
	managers []Manager
}

func newCommonNode(from int) *commonNode {
	h := &held{chains: map[string]tables.Chain{}, maps: map[string]map[netip.Addr]tables.Action{}, sets: map[string]map[model.Member]bool{}}
	r := rules.NewRenderer("flx-gw0", 64)
	endpoints := NewEndpointManager(r, h, h, NewMapDispatcher(h))
	endpoints.SetCommonFrom(from)
	return &commonNode{h, []Manager{
		NewDeniedManager(h), NewStaticManager("node1", r, h, h), NewPolicyManager("node1", r, h), endpoints,
	}}
}

func (n *commonNode) send(updates ...model.Update) {
	for _, m := range n.managers {
		send(m, updates...)
	}
}

// probe is a first packet between pods of the node.
type probe struct {
	src, dst netip.Addr
	port     uint16
	mark     uint32
}

// follow walks a chain and returns how the packet ends, "" if it comes back.
func (h *held) follow(t *testing.T, p *probe, name string) string {
	t.Helper()
	chain, ok := h.chains[name]
	if !ok {
		t.Fatalf("there is no chain %s", name)
	}
rules:
	for _, r := range chain.Rules {
		for _, m := range r.Matches {
			if !h.matches(t, p, m) {
				continue rules
			}
		}
		action := r.Action
		if d, ok := action.(tables.Dispatch); ok {
			if action, ok = h.maps[d.Map][p.address(d.Side)]; !ok {
				continue
			}
		}
		switch a := action.(type) {
		case tables.Accept:
			return "accept"
		case tables.Drop:
			return "drop"
		case tables.Return:
			return ""
		case tables.Goto:
			return h.follow(t, p, a.Chain)
		case tables.Jump:
			if end := h.follow(t, p, a.Chain); end != "" {
				return end
			}
		case tables.SetMark:
			p.mark = p.mark&^a.Mask | a.Value
		case tables.SetMarkAndReturn:
			p.mark = p.mark&^a.Mask | a.Value
			return ""
		default:
			t.Fatalf("action %s", a)
		}
	}
	return ""
}

func (p *probe) address(s tables.Side) netip.Addr {
	if s == tables.Source {
		return p.src
	}
	return p.dst
}

func (h *held) matches(t *testing.T, p *probe, m tables.Match) bool {
	t.Helper()
	switch m := m.(type) {
	case tables.MatchInterface:
		return !m.Negated
	case tables.MatchProtocol:
		return (m.Protocol == model.TCP) != m.Negated
	case tables.MatchSYN:
		return !m.Negated
	case tables.MatchConnState:
		return m.States&tables.StateNew != 0
	case tables.MatchDestinationPorts:
		return m.First <= p.port && p.port <= m.Last
	case tables.MatchMark:
		return (p.mark&m.Mask == m.Value) != m.Negated
	case tables.MatchPrefix:
		return m.Prefix.Contains(p.address(m.Side)) != m.Negated
	case tables.MatchSet:
		members, ok := h.sets[m.Set]
		if !ok {
			t.Fatalf("there is no set %s", m.Set)
		}
		return members[model.AddressMember(p.address(m.Side))]
	}
	t.Fatalf("match %s", m)
	return false
}

// randomUpdate is a new version of one of a few policies or pods, or its end.
func randomUpdate(random *rand.Rand) []model.Update {
	ids := []model.PolicyID{
		{Tier: model.TierAdmin, Name: "a0"},
		{Tier: model.TierAdmin, Name: "a1"},
		{Tier: model.TierAdmin, Name: "a2"},
		{Tier: model.TierNetworkPolicy, Namespace: "x", Name: "n0"},
		{Tier: model.TierNetworkPolicy, Namespace: "x", Name: "n1"},
		{Tier: model.TierNetworkPolicy, Namespace: "x", Name: "n2"},
		{Tier: model.TierBaseline, Name: "b0"},
	}
	if random.IntN(3) == 0 {
		p := &model.Policy{ID: ids[random.IntN(len(ids))]}
		for _, d := range model.Directions() {
			for i := range random.IntN(3) {
				r := model.Rule{Name: fmt.Sprintf("%s[%d]", d, i), Action: model.Allow, AnyPeer: true}
				if p.ID.Tier != model.TierNetworkPolicy {
					r.Action = []model.Action{model.Allow, model.Deny, model.Pass}[random.IntN(3)]
				}
				first := uint16(1 + random.IntN(4))
				r.Ports = []model.PortRange{{Protocol: model.TCP, First: first, Last: first + uint16(random.IntN(2))}}
				if d == model.Egress {
					p.Egress = append(p.Egress, r)
				} else {
					p.Ingress = append(p.Ingress, r)
				}
			}
		}
		return []model.Update{model.PolicyUpdate{Policy: p}}
	}
	i := random.IntN(6)
	id := model.PodID{Namespace: "x", Name: fmt.Sprintf("p%d", i)}
	if random.IntN(5) == 0 {
		return []model.Update{model.EndpointRemove{ID: id}, model.AttachmentRemove{Pod: id, Interface: id.Name}}
	}
	applied := func() (a model.Applied) {
		for _, id := range ids {
			switch {
			case random.IntN(2) == 0:
			case id.Tier == model.TierAdmin && i < 4:
				a.Admin = append(a.Admin, id)
			case id.Tier == model.TierNetworkPolicy:
				a.NetworkPolicies = append(a.NetworkPolicies, id)
			case id.Tier == model.TierBaseline:
				a.Baseline = append(a.Baseline, id)
			}
		}
		return a
	}
	e := &model.Endpoint{ID: id, Ingress: applied(), Egress: applied()}
	if random.IntN(2) == 0 {
		e.Egress = e.Ingress
	}
	return []model.Update{model.EndpointUpdate{Endpoint: e}, attachment(id.Name, id.Name, podAddress(i).String(), fmt.Sprintf("fd00:10::%d", i+2))}
}

func podAddress(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 10, 0, byte(i + 2)}) }

// With and without common chains the verdicts are equal, in all tiers. The programmed
// state does not depend on the order of updates.
func TestCommonChainsDecideAlike(t *testing.T) {
	random := rand.New(rand.NewPCG(15, 1))
	seen, common := map[string]int{}, 0
	for range 60 {
		plain, shared := newCommonNode(1<<40), newCommonNode(1)
		latest := map[string][]model.Update{}
		first := []model.Update{treeNode()}
		for _, id := range []string{"a0", "a1", "a2"} {
			first = append(first, model.PolicyUpdate{Policy: &model.Policy{ID: model.PolicyID{Tier: model.TierAdmin, Name: id}}})
		}
		plain.send(first...)
		shared.send(first...)
		latest[""] = first
		for range 25 {
			updates := randomUpdate(random)
			plain.send(updates...)
			shared.send(updates...)
			latest[fmt.Sprint(subject(updates[0]))] = updates
			for _, c := range []string{rules.ChainCommonIn, rules.ChainCommonOut} {
				common += len(shared.held.chains[c].Rules)
			}
			for i := range 6 {
				for port := range uint16(6) {
					p := probe{src: podAddress(i), dst: podAddress((i + 1) % 6), port: port}
					q := p
					want, got := plain.held.follow(t, &p, rules.ChainForward), shared.held.follow(t, &q, rules.ChainForward)
					if seen[want]++; want != got {
						t.Fatalf("%v: %s, want %s\n%s", q, got, want, shared.held.text())
					}
				}
			}
		}
		fresh := newCommonNode(1)
		for _, key := range slices.Sorted(maps.Keys(latest)) {
			fresh.send(latest[key]...)
		}
		if d := cmp.Diff(fresh.held.text(), shared.held.text()); d != "" {
			t.Fatalf("another order ends in another state (-fresh +grown):\n%s", d)
		}
	}
	if common == 0 || seen["accept"] < 100 || seen["drop"] < 100 {
		t.Errorf("one-sided: %d rules in common chains, %v", common, seen)
	}
}

// After a refusal each chain asks its policies itself, as without common chains.
func TestLeaveCommonChains(t *testing.T) {
	random := rand.New(rand.NewPCG(15, 2))
	common, apart := newCommonNode(1), newCommonNode(NoCommon)
	common.send(treeNode())
	apart.send(treeNode())
	for range 40 {
		updates := randomUpdate(random)
		common.send(updates...)
		apart.send(updates...)
	}
	if common.held.text() == apart.held.text() {
		t.Fatal("the common chains ask nothing")
	}
	endpoints := common.managers[len(common.managers)-1].(*EndpointManager)
	if !endpoints.LeaveCommonChains() || endpoints.LeaveCommonChains() {
		t.Error("the first call changes chains, and no other")
	}
	if diff := cmp.Diff(apart.held.text(), common.held.text()); diff != "" {
		t.Errorf("without common chains (-) and after leaving them (+):\n%s", diff)
	}
}

// subject is what an update is about.
func subject(u model.Update) any {
	switch u := u.(type) {
	case model.PolicyUpdate:
		return u.Policy.ID
	case model.EndpointUpdate:
		return u.Endpoint.ID
	case model.EndpointRemove:
		return u.ID
	}
	return nil
}
