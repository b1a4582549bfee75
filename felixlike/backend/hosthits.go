package backend

import (
	"context"
	"errors"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/nftables"
)

// Hits adds the counters of the rules of policies in the table, as Observer does for policies of pods.
func (h *Hosts) Hits(ctx context.Context, counted Counted, policies []*model.Policy) error {
	r := rules.NewRenderer(model.GatewayPort, rules.NFTablesNameLength).OfHosts()
	keys, total := counterKeys{}, map[string]RuleKey{}
	for _, d := range model.Directions() {
		total[rules.HostsDenied(d)], total[rules.HostsRejected(d)] = DeniedKey(d), RejectedKey(d)
		for _, p := range policies {
			r.PolicyCounters(p, d, func(rule *model.Rule, c rules.Counter) { keys[c] = RuleKey{p.ID.String(), rule.Name} })
		}
	}
	total[rules.ChainHostsDeniedPreDNAT], total[rules.ChainHostsRejectedPreDNAT] = DeniedKey(model.Ingress), RejectedKey(model.Ingress)
	all := &model.HostPolicies{PreDNAT: model.Applied{Admin: []model.PolicyID{{}}}} // any, for its chains
	for _, c := range rules.Hosts(r, all, h.failsafe, false) {
		if key, ends := total[c.Name]; ends {
			for _, end := range rules.Ends(c) {
				keys[end] = key
			}
		}
	}
	table := nftables.New(nftables.Options{Table: nftables.HostsTable, NetNS: h.c.NetNS})
	_, err := countRules(ctx, table, keys.addTo(counted))
	return errors.Join(err, table.Close())
}
