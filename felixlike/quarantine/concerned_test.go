package quarantine

import (
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// TestPodsOfRenderedChains: the origin of each rendered chain leads to the pods whose packets
// pass it, and to no others.
func TestPodsOfRenderedChains(t *testing.T) {
	id := func(tier model.Tier, name string) model.PolicyID {
		return model.PolicyID{Tier: tier, Namespace: "x", Name: name}
	}
	admin, np, other := id(model.TierAdmin, "a"), id(model.TierNetworkPolicy, "p"), id(model.TierNetworkPolicy, "q")
	lists := map[string]model.Applied{
		"open":  {},
		"admin": {Admin: []model.PolicyID{admin}},
		"np":    {NetworkPolicies: []model.PolicyID{np}},
		"both":  {Admin: []model.PolicyID{admin}, NetworkPolicies: []model.PolicyID{np, other}},
	}
	tr := cluster.NewModel()
	for name, list := range lists {
		pod := model.PodID{Namespace: "x", Name: name}
		tr.Attachments[pod] = &model.Attachment{Pod: pod}
		// Egress has no policies, so its chains concern nobody.
		tr.Endpoints[pod] = &model.Endpoint{Ingress: list}
	}
	concerned := newConcerned(tr)
	all := func(model.PolicyID) bool { return true }
	for _, length := range []int{rules.NFTablesNameLength, rules.IPTablesNameLength} {
		r := rules.NewRenderer(model.GatewayPort, length)
		want := func(what string, c tables.Chain, d model.Direction, pods ...string) {
			t.Helper()
			if d == model.Egress {
				pods = nil
			}
			var got []string
			for _, id := range concerned.closedBy(tables.Refusal{Object: "chain", ClosedOf: []tables.Origin{c.Origin}}) {
				got = append(got, id.Name)
			}
			if !slices.Equal(got, pods) {
				t.Errorf("%s %s: pods %q, want %q", d, what, got, pods)
			}
		}
		for _, d := range model.Directions() {
			for name, list := range lists {
				if list.Empty() {
					continue
				}
				c, _ := r.Applied(d, list, all)
				want(name, c, d, name)
				want(name+" behind the admin tier", r.BehindAdmin(d, list, all), d, name)
			}
			want("admin list", r.AdminList(d, []model.PolicyID{admin}, all), d, "admin", "both")
			for policy, pods := range map[model.PolicyID][]string{admin: {"admin", "both"}, np: {"both", "np"}, other: {"both"}} {
				want(policy.String(), r.PolicyRules(&model.Policy{ID: policy}, d, model.Families()), d, pods...)
			}
		}
		want("common", rules.RenderCommon(model.Egress, rules.Common{}), model.Ingress, "admin", "both", "np", "open")
		for _, c := range r.Node().Static(&model.Node{Name: "node1"}) {
			want(c.Name, c, model.Ingress, "admin", "both", "np", "open")
		}
	}
}

// TestOwnersOfGroup: an object is one owner of a group, whatever the number of its parts.
func TestOwnersOfGroup(t *testing.T) {
	tr := cluster.NewModel()
	for _, id := range []model.PolicyID{
		{Tier: model.TierAdmin, API: model.AntreaCluster, Name: "p", Part: 1},
		{Tier: model.TierAdmin, API: model.AntreaCluster, Name: "p", Part: 2},
		{Tier: model.TierAdmin, API: model.AntreaCluster, Name: "p", Part: 2, Within: "shop"},
		{Tier: model.TierAdmin, API: model.AntreaCluster, Name: "q"},
	} {
		tr.Policies[id] = &model.Policy{ID: id, Egress: []model.Rule{{Peers: []model.GroupID{"a1"}}}}
	}
	owners, _ := newConcerned(tr).owners(tables.Refusal{Object: "set", Origin: tables.OfGroup{ID: "a1"}})
	if got := strings.Join(names(owners), ", "); got != "clusternetworkpolicy.crd.antrea.io/p, clusternetworkpolicy.crd.antrea.io/q" {
		t.Errorf("owners %s", got)
	}
}
