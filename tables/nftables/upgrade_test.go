package nftables

import (
	"context"
	"net/netip"
	"testing"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/tablestest"
)

// Earlier versions led from the chains of egress to ingress instead of returning to
// forward. During an upgrade from them, in many transactions, no packet passes that
// ingress denies.
func TestUpgradeFromNestedDirections(t *testing.T) {
	upgrade(t, 10, loadNested)
}

// Earlier versions wrote shorter hashes into the comments, so an upgrade rewrites all rules.
func TestUpgradeFromShortHashes(t *testing.T) {
	const short = 14
	upgrade(t, 10, func(table *Table, r *rules.Renderer) {
		loadPolicies(table, r)
		for _, c := range table.chains {
			for i, hash := range c.hashes {
				c.hashes[i] = hash[:short]
			}
		}
	})
}

// Earlier versions looked a single prefix up in a set, before the ports.
func TestUpgradeFromSetsOfOnePrefix(t *testing.T) {
	upgrade(t, 4, func(table *Table, r *rules.Renderer) {
		loadPolicies(table, r)
		table.CreateSet(ipsets.Set{Name: "nearlier-4", Kind: model.Networks, Family: model.IPv4})
		table.AddMembers("nearlier-4", []model.Member{{Prefix: upgradePeers}})
		for _, d := range model.Directions() {
			c := r.PolicyRules(upgradePolicy(), d, []model.Family{model.IPv4})
			for i := range c.Rules {
				m := c.Rules[i].Matches
				prefix, ok := m[len(m)-1].(tables.MatchPrefix)
				if !ok {
					t.Fatalf("%s is no rule of one prefix", c.Rules[i])
				}
				c.Rules[i].Matches = append([]tables.Match{tables.MatchSet{Family: model.IPv4, Side: prefix.Side, Set: "nearlier-4"}}, m[:len(m)-1]...)
			}
			table.UpdateChain(c)
		}
	})
}

// upgrade programs the objects of the earlier version, then lets this version take over,
// in one transaction and in many, which are at least that many.
func upgrade(t *testing.T, least int, load func(old *Table, r *rules.Renderer)) {
	t.Helper()
	for _, limit := range []int{maxBatch, 4} {
		p := newPath(t)
		old := p.router.open(t)
		load(old, newUpgradeRenderer())
		apply(t, old)
		judged := func(when string) {
			t.Helper()
			for port, want := range map[uint16]bool{tablestest.Sentinel: true, 80: true, 81: false, 82: false} {
				if got := p.passes(t, model.UDP, addr("10.1.0.1"), addr("10.2.0.1"), port); got != want {
					t.Errorf("limit %d, %s: port %d passes %v, want %v", limit, when, port, got, want)
				}
			}
		}
		judged("before")
		table := p.router.open(t)
		table.limit = limit
		loadPolicies(table, newUpgradeRenderer())
		var probes []uint32
		result, err := table.Apply(asked{t.Context(), func() {
			probes = append(probes, p.Send(t, model.UDP, addr("10.1.0.1"), addr("10.2.0.1"), 81))
		}})
		if err != nil {
			t.Fatal(err)
		}
		judged("after")
		if limit < maxBatch && len(probes) < least {
			t.Errorf("limit %d: only %d probes were sent", limit, len(probes))
		}
		for i, probe := range probes {
			if p.Arrived(probe) {
				t.Errorf("limit %d: a packet that ingress denies passed before transaction %d of %d", limit, i, len(probes))
			}
		}
		if result.RulesAdded == 0 {
			t.Errorf("nothing was upgraded: %+v", result)
		}
		wantSilent(t, table)
	}
}

// asked is a context that calls a function whenever Apply checks it, before each
// transaction.
type asked struct {
	context.Context
	then func()
}

func (a asked) Err() error {
	a.then()
	return a.Context.Err()
}

func newUpgradeRenderer() *rules.Renderer { return rules.NewRenderer("r1", rules.NFTablesNameLength) }

// upgradePeers has the addresses of both ends.
var upgradePeers = netip.MustParsePrefix("10.0.0.0/8")

// upgradePolicy allows 80 and the sentinel in both directions, 81 only out, 82 only in.
func upgradePolicy() *model.Policy {
	p := &model.Policy{ID: model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "x", Name: "base"}}
	allow := func(port uint16) model.Rule {
		return model.Rule{Name: "rule", Action: model.Allow, Peers: []model.GroupID{model.PrefixGroup(upgradePeers)}, Ports: []model.PortRange{{Protocol: model.UDP, First: port, Last: port}}}
	}
	p.Ingress = []model.Rule{allow(80), allow(82), allow(tablestest.Sentinel)}
	p.Egress = []model.Rule{allow(80), allow(81), allow(tablestest.Sentinel)}
	return p
}

func upgradeApplied() model.Applied {
	return model.Applied{NetworkPolicies: []model.PolicyID{upgradePolicy().ID}}
}

func upgradeNode() *model.Node {
	return &model.Node{Name: "n", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
}

// loadPolicies loads the chains that this version renders.
func loadPolicies(table *Table, r *rules.Renderer) {
	all := []managers.Manager{
		managers.NewDeniedManager(table, r), managers.NewStaticManager("n", r, table, table), managers.NewPolicyManager("n", r, table),
		managers.NewEndpointManager(r, table, table, managers.NewMapDispatcher(table)),
	}
	updates := []model.Update{model.NodeUpdate{Node: upgradeNode()}, model.PolicyUpdate{Policy: upgradePolicy()}}
	for _, a := range []string{"10.1.0.1", "10.1.0.2", "10.2.0.1", "10.2.0.2"} {
		id := model.PodID{Namespace: "x", Name: a}
		updates = append(updates,
			model.EndpointUpdate{Endpoint: &model.Endpoint{ID: id, Ingress: upgradeApplied(), Egress: upgradeApplied()}},
			model.AttachmentUpdate{Attachment: &model.Attachment{Pod: id, Interface: a, Addresses: []netip.Addr{addr(a)}}})
	}
	for _, m := range all {
		for _, u := range updates {
			m.OnUpdate(u)
		}
	}
	for _, m := range all {
		m.CompleteDeferredWork()
	}
}

// loadNested loads the chains that that version rendered of the same model.
func loadNested(table *Table, r *rules.Renderer) {
	const podsOut, policyOut = "pods-out-x/base-7wwx3qqt", "pout-x/base-3b4ojn5n"
	loadPolicies(table, r)
	judged := rule(tables.SetMark{Value: rules.MarkJudged, Mask: rules.MarkJudged}, "is judged")
	in := tables.MatchInterface{Side: tables.Source, Name: "r1"}
	out := tables.MatchInterface{Side: tables.Destination, Name: "r1"}
	nested := map[string][]tables.Rule{
		"from-pods": {
			judged, rule(tables.Dispatch{Family: model.IPv4, Side: tables.Source, Map: "from-pods-4"}, ""),
			rule(tables.Goto{Chain: "to-pods"}, ""),
		},
		"from-outside": {judged, rule(tables.Goto{Chain: "to-pods"}, "")},
		"to-pods": {
			rule(tables.Dispatch{Family: model.IPv4, Side: tables.Destination, Map: "to-pods-4"}, ""), rule(tables.Accept{}, ""),
		},
		podsOut: {rule(tables.Jump{Chain: policyOut}, "x/base"), rule(tables.Goto{Chain: "denied-out"}, "isolated egress")},
	}
	for _, port := range upgradePolicy().Egress {
		nested[policyOut] = append(nested[policyOut], rule(tables.Goto{Chain: "to-pods"}, "x/base",
			tables.MatchProtocol{Protocol: model.UDP}, tables.MatchDestinationPorts{First: port.Ports[0].First, Last: port.Ports[0].Last}))
	}
	// Remove the objects that only this version has.
	for _, f := range model.Families() {
		table.RemoveSet(rules.DispatchMap(model.Egress, f))
	}
	for _, name := range []string{
		rules.ChainEgress, rules.ChainOutside, rules.ChainAllowedOut, rules.ChainCommonIn, rules.ChainCommonOut,
		r.AppliedChain(model.Egress, upgradeApplied()), r.PolicyChain(upgradePolicy().ID, model.Egress),
	} {
		table.RemoveChain(name)
	}
	for name, all := range nested {
		table.UpdateChain(tables.Chain{Name: name, Rules: all})
	}
	table.CreateMap("from-pods-4", model.IPv4)
	for _, a := range []string{"10.1.0.1", "10.1.0.2", "10.2.0.1", "10.2.0.2"} {
		table.SetVerdict("from-pods-4", addr(a), tables.Goto{Chain: podsOut})
	}
	table.UpdateChain(tables.Chain{Name: "forward", Hook: forwardHook, Rules: []tables.Rule{
		rule(tables.Goto{Chain: "from-pods"}, "", in), rule(tables.Goto{Chain: "from-outside"}, "", out),
	}})
}
