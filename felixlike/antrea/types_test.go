package antrea_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/datastore/strict"
)

// TestDecode: every field that the API has is known, at its place, and others are faults.
func TestDecode(t *testing.T) {
	tests := []struct {
		name, text string
		into       any
		unknown    string
	}{
		{"tier", `{"apiVersion":"crd.antrea.io/v1beta1","kind":"Tier","metadata":{"name":"t"},"spec":{"priority":10,"description":"d"}}`, &antrea.Tier{}, ""},
		{"cluster policy", `{"spec":{"tier":"t","priority":5.5,
			"appliedTo":[{"podSelector":{},"namespaceSelector":{}},{"group":"g"},{"serviceAccount":{"namespace":"n","name":"s"}},{"service":{"name":"s"}},{"nodeSelector":{}},{"externalEntitySelector":{}}],
			"ingress":[{"action":"Allow","name":"r","enableLogging":true,"logLabel":"l","appliedTo":[{"group":"g"}],
				"from":[{"ipBlock":{"cidr":"192.0.2.0/24","except":["192.0.2.1/32"]}},{"podSelector":{},"namespaces":{"match":"Self"}},{"group":"g"},{"nodeSelector":{}},
					{"namespaces":{"sameLabels":["a"]}},{"fqdn":"a.example"},{"serviceAccount":{"name":"s"}},{"externalEntitySelector":{}},{"namespaceSelector":{},"scope":"ClusterSet"}],
				"ports":[{"protocol":"TCP","port":80,"endPort":90},{"port":"http"},{"sourcePort":1,"sourceEndPort":2}]}],
			"egress":[{"action":"Drop","to":[{"podSelector":{}}],"protocols":[{"icmp":{"icmpType":8}}],"l7Protocols":[{"http":{}}],"toServices":[{"name":"s"}]}]},
			"status":{"phase":"Realized"}}`, &antrea.ClusterNetworkPolicy{}, ""},
		{"policy", `{"spec":{"priority":1,"appliedTo":[{"podSelector":{}}]},"status":null}`, &antrea.NetworkPolicy{}, ""},
		{"cluster group", `{"spec":{"podSelector":{},"namespaceSelector":{},"ipBlocks":[{"cidr":"192.0.2.0/24"}],"childGroups":["g"],
			"serviceReference":{"name":"s"},"externalEntitySelector":{}},"status":{"conditions":[]}}`, &antrea.ClusterGroup{}, ""},
		{"group", `{"spec":{"childGroups":["g"]}}`, &antrea.Group{}, ""},
		{"egress", `{"spec":{"appliedTo":{"podSelector":{},"namespaceSelector":{}},"egressIP":"192.0.2.1","egressIPs":["192.0.2.2"],"externalIPPool":"p","externalIPPools":["p"],"bandwidth":{"rate":"1M"}},"status":{"egressNode":"n"}}`, &antrea.Egress{}, ""},
		{"pool", `{"spec":{"ipRanges":[{"cidr":"192.0.2.0/24"},{"start":"192.0.2.1","end":"192.0.2.9"}],"nodeSelector":{},"subnetInfo":{"gateway":"192.0.2.1","prefixLength":24}},"status":{"usage":{"used":1}}}`, &antrea.ExternalIPPool{}, ""},
		{"unknown field of a pool", `{"spec":{"nodeSelector":{},"ranges":[]}}`, &antrea.OwnExternalIPPool{}, "spec.ranges"},
		{"egress with a node", `{"spec":{"appliedTo":{"podSelector":{}},"egressIP":"192.0.2.1","node":"n"}}`, &antrea.NodeEgress{}, ""},
		{"node in Antrea's egress", `{"spec":{"appliedTo":{"podSelector":{}},"egressIP":"192.0.2.1","node":"n"}}`, &antrea.Egress{}, "spec.node"},
		{"unknown field of a rule", `{"spec":{"priority":1,"egress":[{"action":"Drop","sni":["a"]}]}}`, &antrea.NetworkPolicy{}, "spec.egress[0].sni"},
		{"unknown field of a group", `{"spec":{"ipBlock":{"cidr":"192.0.2.0/24"}}}`, &antrea.Group{}, "spec.ipBlock"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, fault := range strict.Decode([]byte(test.text), test.into) {
				got = append(got, fault.Field)
			}
			var want []string
			if test.unknown != "" {
				want = append(want, test.unknown)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
