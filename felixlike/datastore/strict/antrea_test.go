package strict

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
)

// TestDecodeAntrea: what is not understood of a policy is such that the policy engine closes it,
// also after the policy was encoded and decoded again. The rest stays as it is.
func TestDecodeAntrea(t *testing.T) {
	const head = `"priority":5,"appliedTo":[{"group":"g"}]`
	open := []antrea.AppliedTo{{Group: "g"}}
	tests := []struct {
		name, spec string
		fields     []string
		want       antrea.PolicySpec
	}{
		{
			"no fault", head + `,"tier":"t","egress":[{"action":"Drop"}]`, nil,
			antrea.PolicySpec{Tier: "t", Priority: 5, AppliedTo: open, Egress: []antrea.Rule{{Action: antrea.Drop}}},
		},
		{
			"rule", head + `,"ingress":[{"action":"Drop","sni":1},{"action":"Allow","from":7},{"action":"Pass"},7,{"action":"Allow","sni":1,"l7Protocols":[{"http":{}}]}]`,
			[]string{"spec.ingress.from"},
			antrea.PolicySpec{Priority: 5, AppliedTo: open, Ingress: []antrea.Rule{
				{Action: antrea.Drop, From: []antrea.Peer{{}}},
				{Action: antrea.Allow, From: []antrea.Peer{{}}},
				{Action: antrea.Pass},
				{From: []antrea.Peer{{}}},
				{From: []antrea.Peer{{}}},
			}},
		},
		{
			"egress rule with appliedTo", `"priority":5,"egress":[{"action":"Drop","sni":1,"appliedTo":[{"podSelector":{}},{"pods":{}}]}]`,
			[]string{"spec.egress[0].sni", "spec.egress[0].appliedTo[1].pods"},
			antrea.PolicySpec{Priority: 5, Egress: []antrea.Rule{{
				Action: antrea.Drop, To: []antrea.Peer{{}}, AppliedTo: []antrea.AppliedTo{{PodSelector: &metav1.LabelSelector{}}, {}},
			}}},
		},
		{
			"tier and priority", `"tier":7,"priority":"x","appliedTo":[{"group":"g"}]`,
			[]string{"spec.tier"},
			antrea.PolicySpec{Tier: noTier, AppliedTo: open},
		},
		{
			"appliedTo", `"priority":5,"appliedTo":{"group":"g"}`,
			[]string{"spec.appliedTo"},
			antrea.PolicySpec{Priority: 5, AppliedTo: []antrea.AppliedTo{{}}},
		},
		{
			"misspelt direction", head + `,"egres":[{"action":"Drop"}]`,
			[]string{"spec.egres"},
			antrea.PolicySpec{Priority: 5, AppliedTo: open, Ingress: []antrea.Rule{{}}, Egress: []antrea.Rule{{}}},
		},
		{
			"misspelt direction beside appliedTo of rules", `"priority":5,"egres":[],"ingress":[{"action":"Drop","appliedTo":[{"group":"g"}]}]`,
			[]string{"spec.egres"},
			antrea.PolicySpec{Priority: 5, Ingress: []antrea.Rule{{AppliedTo: open}}, Egress: []antrea.Rule{{AppliedTo: open}}},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for _, kind := range []antrea.Kind{antrea.KindClusterNetworkPolicy, antrea.KindNetworkPolicy} {
				object, faults := DecodeAntrea(kind, []byte(`{"spec":{`+test.spec+`}}`))
				var fields []string
				for _, f := range faults {
					fields = append(fields, f.Field)
				}
				if diff := cmp.Diff(test.fields, fields); diff != "" {
					t.Errorf("faults:\n%s", diff)
				}
				if diff := cmp.Diff(&test.want, antreaSpec(object)); diff != "" {
					t.Error(diff)
				}
				data, err := json.Marshal(object)
				if err != nil {
					t.Fatal(err)
				}
				again, _ := DecodeAntrea(kind, data)
				if diff := cmp.Diff(&test.want, antreaSpec(again)); diff != "" {
					t.Errorf("decoded again:\n%s", diff)
				}
			}
		})
	}
}

// TestDecodeAntreaGroups: a group or a tier with a fault has no members or place.
func TestDecodeAntreaGroups(t *testing.T) {
	for kind, spec := range map[antrea.Kind]string{
		antrea.KindTier: `{"priority":5,"order":1}`, antrea.KindClusterGroup: `{"podSelector":{},"pods":{}}`, antrea.KindGroup: `{"podSelector":{},"pods":{}}`,
	} {
		object, faults := DecodeAntrea(kind, []byte(`{"spec":`+spec+`}`))
		if len(faults) != 1 {
			t.Errorf("%s: %v", kind, faults)
		}
		switch o := object.(type) {
		case *antrea.Tier:
			if o.Spec.Priority >= 0 {
				t.Errorf("tier: %+v", o.Spec)
			}
		case *antrea.ClusterGroup:
			if o.Spec.PodSelector != nil {
				t.Errorf("cluster group: %+v", o.Spec)
			}
		case *antrea.Group:
			if o.Spec.PodSelector != nil {
				t.Errorf("group: %+v", o.Spec)
			}
		}
	}
}

// TestCloseAntrea: a policy that cannot be trusted denies everything, to all pods if it says no others.
func TestCloseAntrea(t *testing.T) {
	p := &antrea.ClusterNetworkPolicy{Spec: antrea.PolicySpec{Priority: 1, Ingress: []antrea.Rule{{Action: antrea.Allow}}}}
	CloseAntrea(p)
	want := antrea.PolicySpec{Priority: 1, AppliedTo: []antrea.AppliedTo{{}}, Ingress: []antrea.Rule{{}}, Egress: []antrea.Rule{{}}}
	if diff := cmp.Diff(want, p.Spec); diff != "" {
		t.Error(diff)
	}
}

// TestNetNamespaceWithFault: addresses that are not understood, or that an unknown field may be meant for, become one that is none, so that no packet
// leaves without one. Those that are understood stay.
func TestNetNamespaceWithFault(t *testing.T) {
	for text, want := range map[string][]string{
		`{"netname": "p", "netid": "7"}`:                              nil,
		`{"netname": "p", "netid": "7", "egressIPs": ["192.0.2.1"]}`:  {"192.0.2.1"},
		`{"netname": "p", "netid": 7, "egressIPs": "192.0.2.1"}`:      {""},
		`{"netname": "p", "netid": 7, "egressIP": ["192.0.2.1"]}`:     {""},
		`{"netname": "p", "netid": 7, "egressIPs": [1, "192.0.2.1"]}`: {""},
		`{"netname": "p", "netid": 7, "spec": {}, "egressIPs": []}`:   {""},
	} {
		o, faults := DecodeAntrea(antrea.KindNetNamespace, []byte(text))
		if got := o.(*antrea.NetNamespace); len(faults) == 0 || got.NetID != nil || !slices.Equal(got.EgressIPs, want) {
			t.Errorf("%s: %+v, faults %v, want addresses %q", text, got, faults, want)
		}
	}
	if o, faults := DecodeAntrea(antrea.KindHostSubnet, []byte(`{"host": "n", "egressIPs": ["192.0.2.1"], "more": 1}`)); len(faults) == 0 || len(o.(*antrea.HostSubnet).EgressIPs) > 0 {
		t.Errorf("a HostSubnet with a fault has addresses: %+v", o)
	}
}

// TestDecodeEgressNetworkPolicy: a rule with a fault has its type and no peer, and an object with another fault is one rule without type.
func TestDecodeEgressNetworkPolicy(t *testing.T) {
	peer := antrea.EgressNetworkPolicyPeer{CIDRSelector: "192.0.2.0/24"}
	closed := []antrea.EgressNetworkPolicyRule{{}}
	const rule = `{"type":"Deny","to":{"cidrSelector":"192.0.2.0/24"}}`
	for _, c := range []struct {
		name, text, field string
		want              []antrea.EgressNetworkPolicyRule
	}{
		{"no fault", `{"spec":{"egress":[` + rule + `]}}`, "", []antrea.EgressNetworkPolicyRule{{Type: antrea.EgressDeny, To: peer}}},
		{"no rules", `{"spec":{"egress":[]}}`, "", []antrea.EgressNetworkPolicyRule{}},
		{
			"rule", `{"spec":{"egress":[{"type":"Allow","to":{"cidrSelector":"192.0.2.0/24","port":80}},` + rule + `]}}`, "spec.egress[0].to.port",
			[]antrea.EgressNetworkPolicyRule{{Type: antrea.EgressAllow}, {Type: antrea.EgressDeny, To: peer}},
		},
		{"type", `{"spec":{"egress":[{"type":7,"to":{}}]}}`, "spec.egress.type", closed},
		{"no type", `{"spec":{"egress":[{"to":{"cidrSelector":"192.0.2.0/24"}}]}}`, "spec.egress[0].type", closed},
		{"no peer", `{"spec":{"egress":[{"type":"Deny"}]}}`, "spec.egress[0].to", []antrea.EgressNetworkPolicyRule{{Type: antrea.EgressDeny}}},
		{"no list", `{"spec":{"egress":7}}`, "spec.egress", closed},
		{"no spec", `{}`, "spec", closed},
		{"other field of spec", `{"spec":{"egress":[` + rule + `],"ingress":[]}}`, "spec.ingress", closed},
		{"other field", `{"spec":{"egress":[` + rule + `]},"rules":[]}`, "rules", closed},
	} {
		object, faults := DecodeAntrea(antrea.KindEgressNetworkPolicy, []byte(c.text))
		var field string
		if len(faults) > 0 {
			field = faults[0].Field
		}
		if diff := cmp.Diff(c.want, object.(*antrea.EgressNetworkPolicy).Spec.Egress); diff != "" || field != c.field {
			t.Errorf("%s: fault %q (-want +got)\n%s", c.name, field, diff)
		}
	}
}
