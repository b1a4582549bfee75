package judge_test

import (
	"fmt"
	"net/netip"

	"github.com/felixlike/felixlike/felixlike/policy/judge"
	"github.com/felixlike/felixlike/model"
)

// The agent names the rule that has denied a packet, or asks whether an established connection is still allowed.
func ExampleJudge_Decide() {
	id := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "shop", Name: "web-to-api"}
	web := model.AddressMember(netip.MustParseAddr("10.10.0.3"))
	j := judge.New()
	j.OnUpdate(model.GroupUpdate{Group: model.Group{ID: "a-web", Kind: model.Addresses}, Added: []model.Member{web}})
	j.OnUpdate(model.PolicyUpdate{Policy: &model.Policy{ID: id, Ingress: []model.Rule{{
		Name: "ingress[0]", Action: model.Allow, Peers: []model.GroupID{"a-web"}, AnyPort: true,
	}}}})
	applied := model.Applied{NetworkPolicies: []model.PolicyID{id}}
	for _, source := range []string{"10.10.0.3", "10.10.0.4"} {
		d := j.Decide(applied, model.Ingress, judge.Packet{
			Source: netip.MustParseAddr(source), Destination: netip.MustParseAddr("10.10.0.2"), Protocol: model.TCP, Port: 80,
		})
		fmt.Println(source, d.Action, d.Rule, d.Isolated)
	}
	// Output:
	// 10.10.0.3 allow ingress[0] false
	// 10.10.0.4 deny  true
}
