package policyflows

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
)

// TestOversizedPolicyIsClosed has a policy whose blocks come to more flows than one
// policy may have: it is named, its pod is closed in that direction, and another
// policy for the same block and another pod goes on. Neither its flows nor its
// members are made. Fewer exceptions open it again.
func TestOversizedPolicyIsClosed(t *testing.T) {
	s, r := newStore(model.IPv4, model.IPv6)
	except := func(n int) []model.Member {
		var all []model.Member
		for i := range n {
			m := members(fmt.Sprintf("fd00:%x::1", i))[0]
			m.Except = true
			all = append(all, m)
		}
		return all
	}
	huge := append(members("::/1", "8000::/1"), except(600)...)
	s.UpdateNetworks("nhuge", huge, nil)
	small := model.Member{Prefix: members("fd00::/16")[0].Prefix, Except: true}
	s.UpdateNetworks("nsmall", append(members("::/1", "8000::/1"), small), nil)
	s.SetPolicy(&model.Policy{ID: networkPolicy("huge"), Egress: []model.Rule{{Action: model.Allow, AnyPort: true, Peers: []model.GroupID{"nhuge"}}}})
	s.SetPolicy(&model.Policy{ID: networkPolicy("small"), Egress: []model.Rule{{Action: model.Allow, AnyPort: true, Peers: []model.GroupID{"nsmall"}}}})
	s.SetPod(testPod(3, model.Applied{}, apply(networkPolicy("huge"), networkPolicy("small"))))
	s.SetPod(testPod(4, model.Applied{}, apply(networkPolicy("small"))))
	s.Complete()
	p := NewProgrammer(s, &refusing{r: r, refuses: func(string) bool { return false }})
	passes := func(n int, to string) bool {
		own := testPod(n, model.Applied{}, model.Applied{}).Addresses[1]
		return newEvaluator(t, r).allows(45, packet{source: own, destination: addrs(to)[0], protocol: model.TCP, destinationPort: 80})
	}
	got, err := p.Apply(t.Context())
	if err != nil || len(got.Refused) != 1 || got.Refused[0].Name != networkPolicy("huge").String() || !slices.Equal(got.Refused[0].Closed, []string{"default/pod-3"}) ||
		!strings.Contains(got.Refused[0].Reason, "spec.egress") {
		t.Fatalf("%v, %+v", err, got.Refused)
	}
	if passes(3, "2001:db8::1") || !passes(4, "2001:db8::1") || passes(4, "fd00::1") {
		t.Errorf("pod-3: %t, pod-4: %t, pod-4 to the exception: %t", passes(3, "2001:db8::1"), passes(4, "2001:db8::1"), passes(4, "fd00::1"))
	}
	if n := len(s.members); n > 100 {
		t.Errorf("%d members are kept for flows", n)
	}
	s.UpdateNetworks("nhuge", nil, except(600)[2:])
	s.Complete()
	if got, err = p.Apply(t.Context()); err != nil || len(got.Refused) > 0 {
		t.Fatalf("with fewer: %v, %+v", err, got.Refused)
	}
	// What one of them excepts and the other allows passes.
	for to, want := range map[string]bool{"2001:db8::1": true, "fd00::2": true, "fd00::1": false, "fd00:1::1": false, "fd00:2::1": true} {
		if passes(3, to) != want {
			t.Errorf("to %s: %t, want %t", to, !want, want)
		}
	}
	s.RemovePolicy(networkPolicy("huge"))
	s.RemoveGroup("nhuge")
	s.Complete()
	if len(s.networks.networks) != 1 {
		t.Errorf("%d groups of networks are left", len(s.networks.networks))
	}
}
