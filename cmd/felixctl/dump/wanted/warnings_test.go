package wanted_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/wanted"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
)

// ordered is a model with that many rules that all match one packet, with actions that take turns. A policy has up to 5,000.
func ordered(backend string, tier model.Tier, rules int) *control.Model {
	pod := model.PodID{Namespace: "x", Name: "a"}
	m := &control.Model{
		Node: "node1", Backend: backend,
		Attachments: []control.Attachment{{Pod: pod, Interface: "fx-a", OFPort: 10, MAC: "0a:00:00:00:00:01", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")}}},
	}
	var ids []model.PolicyID
	for i := range rules {
		if i%5000 == 0 {
			ids = append(ids, model.PolicyID{Tier: tier, Name: fmt.Sprintf("many-%d", len(ids))})
			m.Policies = append(m.Policies, &model.Policy{ID: ids[len(ids)-1]})
		}
		p := m.Policies[len(m.Policies)-1]
		p.Egress = append(p.Egress, model.Rule{Action: []model.Action{model.Allow, model.Deny}[i%2], AnyPeer: true, AnyPort: true})
	}
	applied := model.Applied{Admin: ids}
	if tier == model.TierBaseline {
		applied = model.Applied{Baseline: ids}
	}
	m.Endpoints = []*model.Endpoint{{ID: pod, Egress: applied}}
	return m
}

// TestWarnings: pods that only openflow closes are named, by the bounds of its priorities, of its flows, and of the time
// for a first apply.
func TestWarnings(t *testing.T) {
	flows := func(n, actions int) *dump.State {
		return &dump.State{Flows: slices.Repeat([]*flowtext.Flow{{Actions: make([]flowtext.Action, actions)}}, n)}
	}
	for name, c := range map[string]struct {
		m    *control.Model
		s    *dump.State
		want string
	}{
		"few rules":               {ordered(config.OpenFlow, model.TierBaseline, 180), flows(1000, 3900), ""},
		"no priority left":        {ordered(config.OpenFlow, model.TierBaseline, 181), flows(1000, 1), "egress of clusternetworkpolicy/many-0: the ordered policies of this node have more rules"},
		"another backend":         {ordered(config.NFTables, model.TierBaseline, 181), flows(1_000_000, 5000), ""},
		"a long flow":             {ordered(config.OpenFlow, model.TierAdmin, 1), flows(1, 4200), "a flow of table 0 has 4200 actions"},
		"many flows":              {ordered(config.OpenFlow, model.TierAdmin, 5000), flows(160_000, 1), "misses its deadline of 1m0s"},
		"as many, and more rules": {ordered(config.OpenFlow, model.TierAdmin, 20_000), flows(160_000, 1), ""},
	} {
		got := strings.Join(wanted.Warnings(c.m, c.s), "\n")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
