package backend

import (
	"fmt"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/rules"
)

// TestCountedParts: the counters of a rule are the sums of its parts in the switch.
func TestCountedParts(t *testing.T) {
	key := RuleKey{"shop/db", "egress[0]"}
	c := Counted{key: {}}
	c.addHits(key, policyflows.Hits{Sessions: 100, Packets: 1000})
	c.addHits(key, policyflows.Hits{})
	if h := c[key]; h.Connections != 100 || h.Packets == nil || *h.Packets != 1000 {
		t.Errorf("%+v", h)
	}
}

// TestCountersOfRules: each rule counts its packets once, whatever its action and the length of its names are. The
// kernel cuts the comments of two policies here at the same place.
func TestCountersOfRules(t *testing.T) {
	port := func(number uint16) []model.PortRange {
		return []model.PortRange{{Protocol: model.UDP, First: number, Last: number}}
	}
	admin := model.PolicyID{Tier: model.TierAdmin, Name: strings.Repeat("a", 253)}
	other := model.PolicyID{Tier: model.TierAdmin, Name: admin.Name[:252] + "b"}
	allows := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: strings.Repeat("n", 63), Name: strings.Repeat("p", 253)}
	policies := []*model.Policy{
		{ID: admin, Egress: []model.Rule{
			{Name: "egress[0]", Action: model.Pass, AnyPeer: true, Ports: port(4000)},
			{Name: "egress[1]", Action: model.Deny, AnyPeer: true, Ports: port(4001)},
			{Name: "egress[2]", Action: model.Reject, AnyPeer: true, Ports: port(4002)},
		}},
		{ID: other, Egress: []model.Rule{
			{Name: "egress[0]", Action: model.Allow, AnyPeer: true, Ports: port(4003)},
			{Name: "egress[1]", Action: model.Allow, AnyPeer: true, Ports: port(4004)},
		}},
		{ID: allows, Egress: []model.Rule{{Name: "egress[0]", Action: model.Allow, AnyPeer: true, Ports: port(4000)}}},
	}
	want := map[RuleKey]uint64{
		{admin.String(), "egress[0]"}: 1, {admin.String(), "egress[1]"}: 1, {admin.String(), "egress[2]"}: 1,
		{other.String(), "egress[0]"}: 1, {other.String(), "egress[1]"}: 0, {allows.String(), "egress[0]"}: 1,
		DeniedKey(model.Egress): 1, RejectedKey(model.Egress): 1, DeniedKey(model.Ingress): 0,
	}
	for name, firewallOf := range firewalls() {
		t.Run(name, func(t *testing.T) {
			f := firewallOf(t)
			updates := closedPod("10.1.0.5", false)
			updates[2].(model.EndpointUpdate).Endpoint.Egress = model.Applied{Admin: []model.PolicyID{admin, other}, NetworkPolicies: []model.PolicyID{allows}}
			for _, p := range policies {
				updates = append(updates, model.PolicyUpdate{Policy: p})
			}
			f.update(updates...)
			f.program(t)
			for number, passes := range map[int]bool{4000: true, 4001: false, 4002: false, 4003: true} {
				newDialogue(t, f.path, number).out(t, fmt.Sprintf("port %d", number), passes)
			}
			counted := Counted{}
			for key := range want {
				counted[key] = control.RuleHits{}
			}
			if err := f.observer.Hits(t.Context(), counted, policies); err != nil {
				t.Fatal(err)
			}
			if n, err := skipped(t.Context(), f.renderer, f.counters); err != nil || n != 2 {
				t.Errorf("%d packets are dropped without a report, %v; want 2", n, err)
			}
			for key, h := range counted {
				if h.Connections != want[key] {
					t.Errorf("%.40s... %s: %d packets, want %d", key.Policy, key.Rule, h.Connections, want[key])
				}
			}
		})
	}
}

// TestUnknownCounters: a counter of no rule adds nothing, nor one whose rule is not asked for.
func TestUnknownCounters(t *testing.T) {
	asked := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "shop", Name: "db"}
	r := rules.NewRenderer("r1", rules.NFTablesNameLength)
	policies := []*model.Policy{{ID: asked, Ingress: []model.Rule{{Name: "ingress[0]", Action: model.Allow, AnyPeer: true, AnyPort: true}}}}
	counted := Counted{}
	keys := newCounterKeys(r, policies)
	for of := range keys {
		keys.addTo(counted)(of, 1)
		keys.addTo(counted)(rules.Counter{Chain: "other", Hash: of.Hash}, 1)
	}
	if len(counted) > 0 {
		t.Errorf("%v", counted)
	}
}
