package backend

import (
	"fmt"
	"os"
	"testing"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// BenchmarkPolicyPackets reads the counters of 1,000 policies of ten rules, as each scrape of
// felixlike_policy_packets_total does.
func BenchmarkPolicyPackets(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("not root")
	}
	for _, name := range []string{config.NFTables, config.IPTablesNFT, config.IPTablesLegacy} {
		b.Run(name, func(b *testing.B) {
			ns, err := scratchNamespace()
			if err != nil {
				b.Fatal(err)
			}
			defer ns.Close()
			node, err := New(b.Context(), Config{Name: name, NetNS: int(ns.Fd()), Node: tryNode})
			if err != nil {
				b.Skip(err)
			}
			defer func() { _ = node.Close() }()
			counted := Counted{DeniedKey(model.Ingress): control.RuleHits{}}
			var policies []*model.Policy
			updates := tryModel()
			for i := range 1000 {
				p := &model.Policy{ID: model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "bench", Name: fmt.Sprintf("policy-%d", i)}}
				for r := range 10 {
					rule := model.Rule{Name: fmt.Sprintf("ingress[%d]", r), Action: model.Allow, Peers: []model.GroupID{"a1"}, AnyPort: true}
					p.Ingress = append(p.Ingress, rule)
					counted[RuleKey{p.ID.String(), rule.Name}] = control.RuleHits{}
				}
				policies, updates = append(policies, p), append(updates, model.PolicyUpdate{Policy: p})
			}
			for _, m := range node.Stage().Managers {
				for _, u := range updates {
					m.OnUpdate(u)
				}
				m.CompleteDeferredWork()
			}
			if _, err := node.Stage().Apply(b.Context()); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := node.Hits(b.Context(), counted, policies); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
