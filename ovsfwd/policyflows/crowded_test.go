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
			all = append(all, model.Rule{Action: model.Allow + model.Action(i%2), AnyPeer: true, Ports: []model.PortRange{tcp(uint16(i), uint16(i))}})
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
		t.Errorf("once more: %v, set aside since %s, %+v", err, since, got.Refused)
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
