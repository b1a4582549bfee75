package rules_test

import (
	"fmt"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

func webToAPI() *model.Policy {
	return &model.Policy{
		ID: model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "shop", Name: "web-to-api"},
		Ingress: []model.Rule{{
			Name: "ingress[0]", Action: model.Allow, Peers: []model.GroupID{"a-web"},
			Ports: []model.PortRange{{Protocol: model.TCP, First: 8080, Last: 8080}},
		}},
	}
}

// The policy manager renders each policy to a chain for each direction in which it has rules.
func ExampleRenderer_PolicyRules() {
	r := rules.NewRenderer(model.GatewayPort, rules.NFTablesNameLength)
	chain := r.PolicyRules(webToAPI(), model.Ingress, []model.Family{model.IPv4})
	fmt.Print(chain.Text())
	// Output:
	// chain pin-shop/web-to-api-mh7bdSe9J2BZ3ksxDQmerAl2tMv
	//   proto tcp dport 8080 ip4 src @a-web-4 accept  # networkpolicy/shop/web-to-api ingress[0]
}

// The endpoint manager renders one chain for all pods with the same list of policies, and leads their addresses there. A policy without rules
// isolates, and has no chain.
func ExampleRenderer_Applied() {
	r := rules.NewRenderer(model.GatewayPort, rules.NFTablesNameLength)
	denyAll := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "shop", Name: "default-deny"}
	list := model.Applied{NetworkPolicies: []model.PolicyID{denyAll, webToAPI().ID}}
	chain, verdict := r.Applied(model.Ingress, list, func(id model.PolicyID) bool { return id != denyAll })
	fmt.Println(verdict)
	fmt.Print(chain.Text())
	// Output:
	// goto pods-in-shop/default-deny_1more-5-i2u1oAkOUq282UKNBhq_DRLeF
	// chain pods-in-shop/default-deny_1more-5-i2u1oAkOUq282UKNBhq_DRLeF
	//   jump pin-shop/web-to-api-mh7bdSe9J2BZ3ksxDQmerAl2tMv  # networkpolicy/shop/web-to-api
	//   goto denied-in  # isolated ingress
}
