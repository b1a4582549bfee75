package policyflows

import (
	"slices"
	"testing"

	"github.com/felixlike/felixlike/model"
)

// TestCrowdedTierClosesPods has more rules in the baseline tier than there are
// priorities: the policies that come too late are reported, and their pods
// closed.
func TestCrowdedTierClosesPods(t *testing.T) {
	s, r := newStore(model.IPv4)
	rules := func(n int) []model.Rule {
		var all []model.Rule
		for i := range n {
			all = append(all, model.Rule{Action: model.Allow + model.Action(i%2), AnyPeer: true, Ports: []model.PortRange{tcp(uint16(i), 800)}})
		}
		return all
	}
	first, late := model.PolicyID{Tier: model.TierBaseline, Name: "first"}, model.PolicyID{Tier: model.TierBaseline, Name: "late"}
	s.SetPolicy(&model.Policy{ID: first, Egress: rules(180)})
	s.SetPolicy(&model.Policy{ID: late, Precedence: model.Precedence{Priority: 1}, Egress: rules(2)})
	s.SetPod(testPod(3, model.Applied{}, apply(first)))
	s.SetPod(testPod(4, model.Applied{}, apply(first, late)))
	s.Complete()
	p := NewProgrammer(s, &refusing{r: r, refuses: func(string) bool { return false }})
	passes := func(n int) bool {
		own := testPod(n, model.Applied{}, model.Applied{}).Addresses[0]
		return newEvaluator(t, r).allows(45, packet{source: own, destination: addrs("192.0.2.1")[0], protocol: model.TCP, destinationPort: 1000})
	}
	got, err := p.Apply(t.Context())
	if err != nil || len(got.Refused) != 1 || got.Refused[0].Name != late.String() || !slices.Equal(got.Refused[0].Closed, []string{"default/pod-4"}) {
		t.Errorf("%v, %+v", err, got.Refused)
	}
	since := got.Refused[0].Since
	if got, err = p.Apply(t.Context()); err != nil || since.IsZero() || !got.Refused[0].Since.Equal(since) || !got.Refused[0].NextTry.IsZero() {
		t.Errorf("once more: %v, quarantined since %s, %+v", err, since, got.Refused)
	}
	if !passes(3) || passes(4) {
		t.Errorf("pod-3 passes: %t; pod-4: %t", passes(3), passes(4))
	}
	s.SetPolicy(&model.Policy{ID: first, Egress: rules(178)})
	s.Complete()
	if got, err = p.Apply(t.Context()); err != nil || len(got.Refused) > 0 || !passes(4) {
		t.Errorf("with room for all: %v, %+v", err, got.Refused)
	}
}

// TestManyOrderedRules has rules in the admin tier come and go, so that they have
// priorities of their own, share them, and have their own again. The first rule that
// matches decides all the time, and the flows are those of a store that gets all updates at once.
func TestManyOrderedRules(t *testing.T) {
	id := model.PolicyID{Tier: model.TierAdmin, Name: "many"}
	actions := []model.Action{model.Deny, model.Reject, model.Allow, model.Allow, model.Allow, model.Pass, model.Deny}
	rules := func(n int) []model.Rule {
		var all []model.Rule
		for i := range n {
			all = append(all, model.Rule{Action: actions[i%len(actions)], AnyPeer: true, Ports: []model.PortRange{tcp(uint16(1000+2*i), uint16(1005+2*i))}})
		}
		return all
	}
	load := func(s *Store, n int) {
		s.SetPolicy(&model.Policy{ID: id, Egress: rules(n)})
		s.Complete()
	}
	s, r := newStore(model.IPv4)
	s.SetPod(testPod(3, model.Applied{}, apply(id)))
	source := testPod(3, model.Applied{}, model.Applied{}).Addresses[0]
	for _, n := range []int{250, 251, 400, 250} {
		load(s, n)
		fresh, updated := newStore(model.IPv4)
		fresh.SetPod(testPod(3, model.Applied{}, apply(id)))
		load(fresh, n)
		if r.text() != updated.text() {
			t.Errorf("%d rules: the flows depend on what was before", n)
		}
		flows := newEvaluator(t, r)
		for port := 995; port < 1020+2*n; port++ {
			want := true
			for _, rule := range rules(n) {
				if int(rule.Ports[0].First) <= port && port <= int(rule.Ports[0].Last) {
					want = !rule.Action.Denies()
					break
				}
			}
			p := packet{source: source, destination: addrs("192.0.2.1")[0], protocol: model.TCP, destinationPort: uint16(port)}
			if got := flows.allows(45, p); got != want {
				t.Fatalf("%d rules, port %d: allowed %t, want %t", n, port, got, want)
			}
		}
	}
}
