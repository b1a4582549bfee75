package oracle_test

import (
	"net/netip"
	"testing"

	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// TestTiersAndOwnNode: the ordered tiers judge what a pod sends to its own node. A
// NetworkPolicy only keeps the baseline tier from being asked. From the own node everything
// passes.
func TestTiersAndOwnNode(t *testing.T) {
	const (
		denyAll     = `{tier: Admin, priority: 5, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}], egress: [{action: Deny, to: [{networks: [0.0.0.0/0]}]}]}`
		denyNodes   = `{tier: Admin, priority: 5, subject: {namespaces: {}}, egress: [{action: Deny, to: [{nodes: {}}]}]}`
		acceptFirst = `{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Accept, to: [{nodes: {}}], protocols: [{tcp: {destinationPort: {number: 80}}}]}]}`
		passFirst   = `{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Pass, to: [{networks: [0.0.0.0/0]}]}]}`
		baseline    = `{tier: Baseline, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, to: [{networks: [0.0.0.0/0]}]}]}`
	)
	for name, test := range map[string]struct {
		policies []string
		isolated bool
		// port80, port81 and gateway are what a pod reaches of its own node.
		port80, port81, gateway bool
	}{
		"deny":                      {[]string{denyAll}, false, false, false, false},
		"deny, isolated":            {[]string{denyAll}, true, false, false, false},
		"deny nodes":                {[]string{denyNodes}, true, false, false, true},
		"accept before deny":        {[]string{denyAll, acceptFirst}, true, true, false, false},
		"pass":                      {[]string{denyAll, passFirst}, false, true, true, true},
		"pass, isolated":            {[]string{denyAll, passFirst, baseline}, true, true, true, true},
		"pass, baseline":            {[]string{denyAll, passFirst, baseline}, false, false, false, false},
		"baseline":                  {[]string{baseline}, false, false, false, false},
		"baseline, isolated":        {[]string{baseline}, true, true, true, true},
		"no rule matches, isolated": {[]string{acceptFirst}, true, true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(t)
			if !test.isolated {
				c.Policies = nil
			}
			for i, text := range test.policies {
				p := &v1alpha2.ClusterNetworkPolicy{}
				p.Name = string(rune('a' + i))
				if err := yaml.UnmarshalStrict([]byte(text), &p.Spec); err != nil {
					t.Fatal(err)
				}
				c.ClusterPolicies = append(c.ClusterPolicies, p)
			}
			const pod, node, gateway = "10.0.1.10", "192.0.2.1", "10.0.1.1"
			for _, way := range []struct {
				from, to string
				port     uint16
				want     bool
			}{
				{pod, node, 80, test.port80},
				{pod, node, 81, test.port81},
				{pod, gateway, 81, test.gateway},
				{node, pod, 80, true},
				{gateway, pod, 80, true},
			} {
				p := oracle.Packet{Source: netip.MustParseAddr(way.from), Destination: netip.MustParseAddr(way.to), Protocol: model.TCP, Port: way.port}
				if v := c.Evaluate(p); v.Allowed != way.want || !v.Ingress.Allowed {
					t.Errorf("%s: %+v, want %t", p, v, way.want)
				}
			}
		})
	}
}
