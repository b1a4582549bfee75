package managers

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// commonNode is the managers of a node.
type commonNode struct {
	held     *held
	managers []Manager
}

func newCommonNode(from int) *commonNode { return newCommonNodeOf(rules.NFTablesNameLength, from) }

// newCommonNodeOf is newCommonNode for nftables or iptables, by the length of names.
func newCommonNodeOf(maxName, from int) *commonNode {
	return newCommonNodeWith(rules.NewRenderer("flx-gw0", maxName), from)
}

func newCommonNodeWith(r *rules.Renderer, from int) *commonNode {
	h := &held{chains: map[string]tables.Chain{}, maps: map[string]map[netip.Addr]tables.Action{}, sets: map[string]map[model.Member]bool{}}
	endpoints := NewEndpointManager(r, h, h, NewMapDispatcher(h))
	endpoints.SetCommonFrom(from)
	return &commonNode{h, []Manager{
		NewDeniedManager(h, r), NewStaticManager("node1", r, h, h), NewPolicyManager("node1", r, h), endpoints,
	}}
}

func (n *commonNode) send(updates ...model.Update) {
	for _, m := range n.managers {
		send(m, updates...)
	}
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
					r.Action = []model.Action{model.Allow, model.Deny, model.Pass, model.Reject}[random.IntN(4)]
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
	for name, maxName := range map[string]int{"nftables": rules.NFTablesNameLength, "iptables": rules.IPTablesNameLength} {
		t.Run(name, func(t *testing.T) { commonChainsDecideAlike(t, maxName) })
	}
}

func commonChainsDecideAlike(t *testing.T, maxName int) {
	random := rand.New(rand.NewPCG(15, 1))
	seen, common := map[string]int{}, 0
	for range 60 {
		plain, shared := newCommonNodeOf(maxName, 1<<40), newCommonNodeOf(maxName, 1)
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
		fresh := newCommonNodeOf(maxName, 1)
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

// Where two objects have one name, common chains go on to ask for all pods but those of
// the objects, and decide as each chain alone does.
func TestCommonChainsWithCollisions(t *testing.T) {
	random := rand.New(rand.NewPCG(15, 4))
	both, seen := 0, map[string]int{}
	for range 60 {
		narrow := func() *rules.Renderer { return rules.NewRenderer("flx-gw0", rules.NFTablesNameLength).Narrowed(0, 1) }
		plain, shared := newCommonNodeWith(narrow(), 1<<40), newCommonNodeWith(narrow(), 1)
		plain.send(treeNode())
		shared.send(treeNode())
		for range 25 {
			updates := randomUpdate(random)
			plain.send(updates...)
			shared.send(updates...)
			endpoints := shared.managers[len(shared.managers)-1].(*EndpointManager)
			if len(endpoints.Refusals()) > 0 && len(endpoints.applied.common.chosen) > 0 {
				both++
			}
			for i := range 6 {
				for port := range uint16(6) {
					p := probe{src: podAddress(i), dst: podAddress((i + 1) % 6), port: port}
					q := p
					want, got := plain.held.follow(t, &p, rules.ChainForward), shared.held.follow(t, &q, rules.ChainForward)
					if seen[want]++; want != got {
						t.Fatalf("%v: %s, want %s\n%s\n%s", q, got, want, plain.held.text(), shared.held.text())
					}
				}
			}
		}
	}
	if both < 100 || seen["accept"] < 100 || seen["drop"] < 100 {
		t.Errorf("one-sided: %d times with collisions and common chains, %v", both, seen)
	}
}

// If another policy has the name of a policy's chain, the pods of the second policy are
// closed, also for packets that a common chain allows. All others stay in the common
// chain.
func TestCollisionConcernsItsPodsOnly(t *testing.T) {
	renderer := rules.NewRenderer("flx-gw0", rules.NFTablesNameLength).Narrowed(0, 2)
	policy := func(name string) model.PolicyID {
		return model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "x", Name: name}
	}
	all, owner := policy("all"), policy("owner")
	taken := func(id model.PolicyID) bool {
		return renderer.PolicyChain(id, model.Ingress) == renderer.PolicyChain(owner, model.Ingress) &&
			renderer.PolicyChain(id, model.Ingress) != renderer.PolicyChain(all, model.Ingress)
	}
	refused := owner
	for i := 0; refused == owner || !taken(refused); i++ {
		refused = policy(fmt.Sprintf("refused%d", i))
	}
	n := newCommonNodeWith(renderer, 1)
	n.send(treeNode())
	for _, id := range []model.PolicyID{owner, all, refused} {
		n.send(model.PolicyUpdate{Policy: &model.Policy{ID: id, Ingress: []model.Rule{{
			Name: "ingress[0]", Action: model.Allow, AnyPeer: true, Ports: []model.PortRange{{Protocol: model.TCP, First: 80, Last: 80}},
		}}}})
	}
	for i := range 5 {
		lists := [][]model.PolicyID{{all, owner}, {all}, {all}, {all}, {all, refused}}
		id := model.PodID{Namespace: "x", Name: fmt.Sprintf("p%d", i)}
		n.send(model.EndpointUpdate{Endpoint: &model.Endpoint{ID: id, Ingress: model.Applied{NetworkPolicies: lists[i]}}},
			attachment(id.Name, id.Name, podAddress(i).String(), fmt.Sprintf("fd00:10::%d", i+2)))
	}
	if refusals := n.managers[len(n.managers)-1].(*EndpointManager).Refusals(); len(refusals) != 1 {
		t.Fatalf("refused: %v", refusals)
	}
	if len(n.held.chains[rules.ChainCommonIn].Rules) == 0 {
		t.Error("nothing is in the common chain")
	}
	for i := range 5 {
		want := "accept"
		if i == 4 {
			want = "drop"
		}
		p := probe{src: podAddress(0), dst: podAddress(i), port: 80}
		if got := n.held.follow(t, &p, rules.ChainForward); got != want {
			t.Errorf("pod %d: %s, want %s\n%s", i, got, want, n.held.text())
		}
	}
}

// iptables changes sets before rules, and destroys sets after. Between the two, packets
// find the old verdicts: no pod is closed, and none is open to rules of others.
func TestCommonSetsChangeWithRules(t *testing.T) {
	random := rand.New(rand.NewPCG(15, 3))
	changes := 0
	for range 30 {
		n := newCommonNodeOf(rules.IPTablesNameLength, 1)
		n.send(treeNode())
		n.send(randomUpdate(random)...)
		for range 30 {
			before := n.held.clone()
			n.send(slices.Concat(randomUpdate(random), randomUpdate(random), randomUpdate(random))...)
			// The sets have changed; sets that only the old rules use still exist.
			between := before.clone()
			for name, members := range n.held.sets {
				if !maps.Equal(between.sets[name], members) {
					changes++
				}
				between.sets[name] = members
			}
			for i := range 6 {
				for port := range uint16(6) {
					p := probe{src: podAddress(i), dst: podAddress((i + 1) % 6), port: port}
					q := p
					want, got := before.follow(t, &p, rules.ChainForward), between.follow(t, &q, rules.ChainForward)
					if want != got {
						t.Fatalf("%v: %s with new sets and old rules, want %s\n%s\n%v", q, got, want, before.text(), n.held.sets)
					}
				}
			}
		}
	}
	if changes < 100 {
		t.Errorf("only %d sets have changed", changes)
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

// subject returns the object of an update.
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
